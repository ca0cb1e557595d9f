//! The live page: three files, compiled in.

use crate::answer::{Answer, whole};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use http::{HeaderValue, StatusCode};

/// Scripts, styles and connections from here and nowhere else; nobody may frame the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// One file.
#[derive(Debug, PartialEq)]
pub(crate) struct Asset {
    path: &'static str,
    media: &'static str,
    text: &'static str,
}

static ASSETS: [Asset; 3] = [
    Asset { path: "/", media: "text/html; charset=utf-8", text: include_str!("../../../dashboard/index.html") },
    Asset { path: "/app.js", media: "text/javascript; charset=utf-8", text: include_str!("../../../dashboard/app.js") },
    Asset { path: "/style.css", media: "text/css; charset=utf-8", text: include_str!("../../../dashboard/style.css") },
];

/// The file at `path`.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|a| a.path == path)
}

impl Asset {
    pub(crate) fn answer(&self) -> Answer {
        let mut answer = whole(StatusCode::OK, self.media, self.text);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        // The next version of the binary brings its own page.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for asset in &ASSETS {
            for word in ["https://", "//cdn", "@import", "url(", "innerHTML", "eval(", "style=\""] {
                assert!(!asset.text.contains(word), "{} in {}", word, asset.path);
            }
        }
    }
}
