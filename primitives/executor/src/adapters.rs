//! Executors of other crates.

#[cfg(feature = "rayon")]
pub use self::rayon::RayonExecutor;
#[cfg(feature = "tokio")]
pub use self::tokio::TokioExecutor;

#[cfg(feature = "rayon")]
mod rayon {
    use std::fmt;

    use folio_sync::{Arc, Executor, Job, Rejected, unwind};

    /// A rayon pool as an [`Executor`]; with [`Serial`](crate::Serial) around it a serial one.
    ///
    /// Jobs are spawned first in, first out. A job that panics ends there: no panic reaches the pool, which would abort the process.
    ///
    /// # Memory
    /// One allocation a job, by the pool.
    #[derive(Clone)]
    pub struct RayonExecutor {
        /// `None` is the global pool.
        pool: Option<Arc<rayon::ThreadPool>>,
    }

    impl RayonExecutor {
        /// Jobs run in rayon's global pool.
        pub fn global() -> Self {
            Self { pool: None }
        }

        /// Jobs run in this pool.
        pub fn new(pool: Arc<rayon::ThreadPool>) -> Self {
            Self { pool: Some(pool) }
        }
    }

    impl Executor for RayonExecutor {
        fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
            let run = move || {
                if let Err(payload) = unwind::catch(|| job.run()) {
                    unwind::discard(payload);
                }
            };
            match &self.pool {
                Some(pool) => pool.spawn_fifo(run),
                None => rayon::spawn_fifo(run),
            }
            Ok(())
        }
    }

    impl fmt::Debug for RayonExecutor {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("RayonExecutor").field("global", &self.pool.is_none()).finish()
        }
    }
}

#[cfg(feature = "tokio")]
mod tokio {
    use folio_sync::{Executor, Job, Rejected};

    /// A tokio runtime as an [`Executor`]; with [`Serial`](crate::Serial) around it a serial one.
    ///
    /// Each job is a task without an await. A job that panics ends its task. When the runtime shuts down, jobs it has not begun are
    /// dropped, and shared jobs hear of it.
    ///
    /// # Memory
    /// One allocation a job, by the runtime.
    #[derive(Clone, Debug)]
    pub struct TokioExecutor {
        handle: tokio::runtime::Handle,
    }

    impl TokioExecutor {
        /// Jobs run in this runtime.
        pub fn new(handle: tokio::runtime::Handle) -> Self {
            Self { handle }
        }
    }

    impl Executor for TokioExecutor {
        fn submit(&self, job: Job) -> Result<(), Rejected<Job>> {
            // Nobody waits for the task: its job tells of itself.
            drop(self.handle.spawn(async move { job.run() }));
            Ok(())
        }
    }
}
