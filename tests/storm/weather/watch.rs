//! A storm that stands still fails, and says where.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::say;

/// More than any call may take by its own deadline.
const LONGEST: Duration = Duration::from_secs(150);

/// What is being done, and since when.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Mutex<(Instant, String)>>);

impl Watch {
    /// Ends the process, and with it all of the pid namespace, if nothing new is done for too long.
    pub(crate) fn start() -> Watch {
        let watch = Watch(Arc::new(Mutex::new((Instant::now(), "it begins".to_owned()))));
        let watched = watch.clone();
        thread::spawn(move || watched.look());
        watch
    }

    pub(crate) fn now(&self, what: String) {
        *self.0.lock().unwrap() = (Instant::now(), what);
    }

    #[expect(clippy::disallowed_methods, reason = "the thread that hangs cannot be made to panic")]
    fn look(&self) {
        loop {
            thread::sleep(Duration::from_secs(1));
            let (since, what) = self.0.lock().unwrap().clone();
            if since.elapsed() > LONGEST {
                say(&format!("nothing has happened for {LONGEST:?}: {what}"));
                std::process::exit(101);
            }
        }
    }
}
