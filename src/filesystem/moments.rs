//! Moments at which the source may have changed. Tests change it there.

/// Before the system is asked about `path` or for its bytes.
#[cfg(not(test))]
pub(super) fn pass(_path: &std::path::Path) {}

#[cfg(test)]
pub(crate) use observed::observe;
#[cfg(test)]
pub(super) use observed::pass;

#[cfg(test)]
mod observed {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use parking_lot::Mutex;

    type Observer = Arc<Mutex<dyn FnMut() + Send>>;

    static OBSERVERS: Mutex<Vec<(PathBuf, Observer)>> = Mutex::new(Vec::new());

    /// Ends the observation when it is dropped.
    pub(crate) struct ObservedMoments(PathBuf);

    /// Calls `observer` at each moment below `root`. Other threads that come to one meanwhile wait.
    pub(crate) fn observe(root: &Path, observer: impl FnMut() + Send + 'static) -> ObservedMoments {
        let observer: Observer = Arc::new(Mutex::new(observer));
        OBSERVERS.lock().push((root.to_path_buf(), observer));
        ObservedMoments(root.to_path_buf())
    }

    pub(in crate::filesystem) fn pass(path: &Path) {
        let observers = OBSERVERS.lock().clone();
        for (_, observer) in observers.into_iter().filter(|(root, _)| path.starts_with(root)) {
            (observer.lock())();
        }
    }

    impl Drop for ObservedMoments {
        fn drop(&mut self) {
            OBSERVERS.lock().retain(|(root, _)| *root != self.0);
        }
    }
}
