//! Requests that wait for their first byte at an endpoint whose breaker finds that it hangs: they are told, and go elsewhere.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use tidegate_core::id::RequestKey;
use tokio::sync::oneshot;

/// Words that came before anybody listened; more than these are forgotten, and their requests wait for their time-out.
const MAX_EARLY: usize = 4096;

/// Who listens. Bounded by the requests in flight.
#[derive(Debug, Default)]
pub(crate) struct Hangs(Mutex<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    listening: HashMap<RequestKey, oneshot::Sender<()>>,
    early: HashSet<RequestKey>,
}

impl Hangs {
    /// Listens for the word about `key`; ends by `forget`.
    pub(crate) fn listen(&self, key: RequestKey) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        let mut listeners = self.0.lock();
        if listeners.early.remove(&key) {
            let _ = tell.send(());
        } else {
            listeners.listening.insert(key, tell);
        }
        told
    }

    /// Nobody listens for `key` any more.
    pub(crate) fn forget(&self, key: RequestKey) {
        self.0.lock().listening.remove(&key);
    }

    /// The endpoint of `key` hangs.
    pub(crate) fn tell(&self, key: RequestKey) {
        let mut listeners = self.0.lock();
        match listeners.listening.remove(&key) {
            Some(tell) => drop(tell.send(())),
            None => {
                if listeners.early.len() >= MAX_EARLY {
                    listeners.early.clear();
                }
                listeners.early.insert(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_comes_before_anybody_listens_is_kept() {
        let (hangs, key) = (Hangs::default(), RequestKey::from_parts((3, 1)));
        hangs.tell(key);
        assert!(hangs.listen(key).try_recv().is_ok());
        let mut later = hangs.listen(key);
        assert!(later.try_recv().is_err(), "told once");
        hangs.tell(key);
        assert!(later.try_recv().is_ok());
    }
}
