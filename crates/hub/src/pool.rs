//! A few threads and the work that waits for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use highwater_log::BoxFuture;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

pub struct Pool<T: Send + 'static> {
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
    /// With no threads, work waits until somebody calls [`Pool::run`].
    pub fn new(name: &str, threads: usize, work: impl Fn(T) + Send + Sync + 'static) -> Pool<T> {
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
                .expect("the system has room for a thread")
        };
        Pool {
            threads: Mutex::new((0..threads).map(start).collect()),
            queue,
        }
    }

    pub fn push(&self, item: T) {
        self.queue.waiting.lock().items.push_back(item);
        self.queue.ready.notify_one();
    }

    /// Does what is waiting, on this thread.
    pub fn run(&self) {
        loop {
            let item = self.queue.waiting.lock().items.pop_front();
            match item {
                Some(item) => (self.queue.work)(item),
                None => return,
            }
        }
    }

    /// Waits until everything that waits is done, and for the threads to end.
    pub fn close(&self) {
        self.queue.waiting.lock().closed = true;
        self.queue.ready.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
        self.run();
    }
}

/// The threads end by themselves. They are not waited for: the last handle may be held by one of them.
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

/// Threads for calls that may have to wait for the disk.
pub struct Readers {
    pool: Pool<Box<dyn FnOnce() + Send>>,
    inline: bool,
}

impl Readers {
    /// With no threads, every call is made at once on the thread of its caller.
    pub fn new(threads: usize) -> Readers {
        Readers {
            pool: Pool::new("hub-read", threads, |call: Box<dyn FnOnce() + Send>| call()),
            inline: threads == 0,
        }
    }

    pub fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<T> {
        if self.inline {
            return Box::pin(std::future::ready(call()));
        }
        let (answer, answered) = oneshot::channel();
        self.pool.push(Box::new(move || {
            // Whoever asked may have stopped waiting.
            let _ = answer.send(call());
        }));
        Box::pin(async move {
            answered
                .await
                .expect("every call is made before the pool ends")
        })
    }

    pub fn close(&self) {
        self.pool.close();
    }
}

/// Does a piece of work for every item, on so many threads, and answers in the order of the items.
pub fn side_by_side<T: Sync, R: Send>(
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
