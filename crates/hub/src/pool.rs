//! A thread pool with a queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use highwater_log::BoxFuture;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

pub(crate) struct Pool<T: Send + 'static> {
    queue: Arc<WorkQueue<T>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct WorkQueue<T> {
    waiting: Mutex<QueueState<T>>,
    ready: Condvar,
    work: Box<dyn Fn(T) + Send + Sync>,
}

struct QueueState<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T: Send + 'static> Pool<T> {
    /// With zero threads, the caller drives the pool with [`Pool::run`].
    pub(crate) fn new(
        name: &str,
        threads: usize,
        work: impl Fn(T) + Send + Sync + 'static,
    ) -> Pool<T> {
        let queue = Arc::new(WorkQueue {
            waiting: Mutex::new(QueueState {
                items: VecDeque::new(),
                closed: false,
            }),
            ready: Condvar::new(),
            work: Box::new(work),
        });
        let start = |number: usize| {
            let queue = queue.clone();
            std::thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || queue.serve())
                .expect("the system can start a thread")
        };
        Pool {
            threads: Mutex::new((0..threads).map(start).collect()),
            queue,
        }
    }

    pub(crate) fn push(&self, item: T) {
        self.queue.waiting.lock().items.push_back(item);
        self.queue.ready.notify_one();
    }

    /// Processes the queue on this thread.
    pub(crate) fn run(&self) {
        loop {
            let item = self.queue.waiting.lock().items.pop_front();
            match item {
                Some(item) => (self.queue.work)(item),
                None => return,
            }
        }
    }

    /// Processes the rest of the queue and joins the threads.
    pub(crate) fn close(&self) {
        self.queue.waiting.lock().closed = true;
        self.queue.ready.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic of the thread was reported already.
            let _ = thread.join();
        }
        self.run();
    }
}

/// The threads end by themselves. They are not joined: one of them may hold the last handle.
impl<T: Send + 'static> Drop for Pool<T> {
    fn drop(&mut self) {
        self.queue.waiting.lock().closed = true;
        self.queue.ready.notify_all();
    }
}

impl<T> WorkQueue<T> {
    fn serve(&self) {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.items.pop_front() {
                Some(item) => {
                    drop(waiting);
                    (self.work)(item);
                    waiting = self.waiting.lock();
                }
                None if waiting.closed => return,
                None => self.ready.wait(&mut waiting),
            }
        }
    }
}

/// Threads for calls that may wait for the disk.
pub(crate) struct Readers {
    pool: Pool<Box<dyn FnOnce() + Send>>,
    inline: bool,
}

impl Readers {
    /// With zero threads, calls run on the thread of the caller.
    pub(crate) fn new(threads: usize) -> Readers {
        Readers {
            pool: Pool::new("hub-read", threads, |call: Box<dyn FnOnce() + Send>| call()),
            inline: threads == 0,
        }
    }

    pub(crate) fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<T> {
        if self.inline {
            return Box::pin(std::future::ready(call()));
        }
        let (answer, answered) = oneshot::channel();
        self.pool.push(Box::new(move || {
            // The receiver may have hung up.
            let _ = answer.send(call());
        }));
        Box::pin(async move { answered.await.expect("the pool completes every call") })
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

/// Maps the items on several threads; the results are in the order of the items.
pub(crate) fn parallel_map<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let serve = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            match items.get(number) {
                Some(item) => done.push((number, work(item))),
                None => return done,
            }
        }
    };
    if threads <= 1 {
        return items.iter().map(work).collect();
    }
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(serve)).collect();
        let ended = threads.into_iter().map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ended.flatten().collect()
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}
