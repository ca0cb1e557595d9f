//! A request as one attempt sends it.

use crate::upstream::upload::Upload;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

/// What all attempts have in common, borrowed, and what is this one's own.
pub(crate) struct Wanted<'r> {
    pub(crate) method: &'r Method,
    pub(crate) uri: &'r Uri,
    pub(crate) headers: &'r HeaderMap,
    /// Headers of this attempt alone.
    pub(crate) own: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Upload,
}

impl Wanted<'_> {
    /// As a value of its own, for HTTP/2.
    pub(crate) fn into_request(self) -> Request<Upload> {
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(self.own);
        request
    }
}
