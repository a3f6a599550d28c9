//! The second connection of a keeper, over which everything goes but renewals.
//!
//! It is opened when somebody needs it and shared by all who do at that time. Nobody holds it up for
//! long: whoever meets another session's lock on it gets [`PATIENCE`] and then has to go on over a
//! connection of its own.
//!
//! Rows that are given up at about the same time are expired by one statement.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::failure::{Failure, answer_by};
use super::listeners::Listeners;
use super::shared::SharedConnection;
use super::store::{OwnRow, Store, Touched};
use crate::context::LockContext;
use crate::error::{Error, Result};
use crate::random;
use crate::rules::retry::{Backoff, FailureClass};

/// How long a statement on the shared connection may wait for another session's lock.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// How many may have a connection of their own at a time, because of a locked row.
const DETOURS: usize = 4;

const TOO_MANY_CONNECTIONS: &str = "53300";

const RELEASING: &str = "cannot release the lock";

/// Rows to be expired for one lock.
#[derive(Debug)]
struct Request {
    ctx: LockContext,
    rows: Vec<OwnRow>,
    by: Instant,
    reply: oneshot::Sender<Result<usize>>,
}

#[derive(Debug, Default)]
struct Queue {
    requests: Vec<Request>,
    /// Somebody is sending what is in the queue, and will look again when that is done.
    attended: bool,
}

#[derive(Debug)]
pub(crate) struct Operations {
    store: Store,
    connection: AsyncMutex<Option<SharedConnection>>,
    detours: Arc<Semaphore>,
    queue: Mutex<Queue>,
    listeners: Listeners,
    /// The server has no connection to spare.
    crowded: AtomicBool,
    /// Notified when that is found out.
    changed: Arc<Notify>,
}

impl Operations {
    pub(crate) fn new(store: Store, changed: Arc<Notify>) -> Self {
        Self {
            store,
            crowded: AtomicBool::new(false),
            changed,
            connection: AsyncMutex::new(None),
            detours: Arc::new(Semaphore::new(DETOURS)),
            queue: Mutex::default(),
            listeners: Listeners::default(),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// The shared connection, opened if there is none.
    pub(crate) async fn connection(
        &self,
        ctx: &LockContext,
        by: Instant,
    ) -> Result<SharedConnection, Failure> {
        let Ok(mut connection) = timeout_at(by, self.connection.lock()).await else {
            return Err(Failure::Silent);
        };
        if let Some(connection) = connection
            .as_ref()
            .filter(|connection| connection.is_open())
        {
            return Ok(connection.clone());
        }
        let opened = SharedConnection::open(&ctx.settings().conninfo, by).await;
        let crowded = opened
            .as_ref()
            .is_err_and(|failure| failure.sqlstate() == Some(TOO_MANY_CONNECTIONS));
        self.crowded.store(crowded, Ordering::Release);
        if crowded {
            self.changed.notify_one();
        }
        Ok(connection.insert(opened?).clone())
    }

    /// Whether the last attempt to connect was refused for lack of connections: then one that is kept
    /// for later had better be closed.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Acquire)
    }

    /// Whether there is a shared connection, or is about to be.
    pub(crate) fn is_open(&self) -> bool {
        self.connection
            .try_lock()
            .map_or(true, |connection| connection.is_some())
    }

    /// A connection is of no use any more: nobody else should have to find that out.
    pub(crate) async fn give_up(&self, connection: &SharedConnection) {
        connection.give_up();
        let mut shared = self.connection.lock().await;
        if shared.as_ref().is_some_and(|shared| shared.is(connection)) {
            *shared = None;
        }
    }

    /// Takes the shared connection away, to be closed, unless somebody is about to use it.
    pub(crate) fn take_connection(&self) -> Option<SharedConnection> {
        self.connection.try_lock().ok()?.take()
    }

    /// Waits for one of the few connections of one's own.
    pub(crate) async fn detour(&self, by: Instant) -> Result<OwnedSemaphorePermit, Failure> {
        match timeout_at(by, Arc::clone(&self.detours).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Failure::Silent),
        }
    }

    /// Ends those among `rows` that are still ours; answers how many that were. On a runtime.
    pub(crate) async fn expire(
        self: &Arc<Self>,
        ctx: &LockContext,
        rows: Vec<OwnRow>,
        limit: Duration,
    ) -> Result<usize> {
        let (reply, answer) = oneshot::channel();
        let request = Request {
            ctx: ctx.clone(),
            rows,
            by: Instant::now() + limit,
            reply,
        };
        let attended = {
            let mut queue = self.queue();
            queue.requests.push(request);
            std::mem::replace(&mut queue.attended, true)
        };
        if !attended {
            tokio::spawn(Arc::clone(self).attend());
        }
        answer
            .await
            .unwrap_or_else(|_| Err(Failure::Silent.into_error(ctx, RELEASING)))
    }

    /// Sends what is in the queue, until it is empty.
    async fn attend(self: Arc<Self>) {
        loop {
            let requests = {
                let mut queue = self.queue();
                if queue.requests.is_empty() {
                    queue.attended = false;
                    return;
                }
                std::mem::take(&mut queue.requests)
            };
            self.send(requests).await;
        }
    }

    async fn send(self: &Arc<Self>, requests: Vec<Request>) {
        let Some(by) = requests.iter().map(|request| request.by).min() else {
            return;
        };
        let mut backoff = Backoff::default();
        let mut answer = None;
        loop {
            let failure = match self.attempt(&requests, by).await {
                Ok(answers) => return self.distribute(requests, answers),
                Err(failure) => failure,
            };
            let pause = match failure.class() {
                FailureClass::Passing => {
                    let left = by.saturating_duration_since(Instant::now());
                    backoff.pause(left, random::fraction())
                }
                FailureClass::Permanent => None,
            };
            match pause {
                Some(pause) => {
                    // What the server said tells more than its silence at the end.
                    answer = Some(failure).filter(Failure::is_an_answer).or(answer);
                    sleep(pause).await;
                }
                None if failure.is_an_answer() => return refuse(requests, failure),
                None => return refuse(requests, answer.unwrap_or(failure)),
            }
        }
    }

    async fn attempt(&self, requests: &[Request], by: Instant) -> Result<Vec<Touched>, Failure> {
        let Some(first) = requests.first() else {
            return Ok(Vec::new());
        };
        let connection = self.connection(&first.ctx, by).await?;
        let rows: Vec<OwnRow> = requests
            .iter()
            .flat_map(|request| request.rows.iter().cloned())
            .collect();
        let limit = by.saturating_duration_since(Instant::now());
        let statement = self.store.expire(connection.client(), &rows, false);
        let Ok(answer) = timeout_at(by, connection.answer(limit, statement)).await else {
            // It answers others, or did so a moment ago.
            return Err(Failure::Silent);
        };
        if matches!(answer, Err(Failure::Silent)) {
            self.give_up(&connection).await;
        }
        answer
    }

    fn distribute(self: &Arc<Self>, requests: Vec<Request>, answers: Vec<Touched>) {
        let mut answers = answers.into_iter();
        for mut request in requests {
            let mut ended = 0;
            let mut locked = Vec::new();
            for row in std::mem::take(&mut request.rows) {
                match answers.next() {
                    Some(Touched::Until(_)) => ended += 1,
                    Some(Touched::Locked) => locked.push(row),
                    Some(Touched::NotOurs) | None => {}
                }
            }
            if locked.is_empty() {
                // Whoever asked may have stopped waiting.
                let _ = request.reply.send(Ok(ended));
            } else {
                request.rows = locked;
                tokio::spawn(Arc::clone(self).expire_locked(request, ended));
            }
        }
    }

    /// Waits for the locks on the rows, over a connection of its own. When that takes too long, the
    /// statement stays with the server, which ends the rows when they are free.
    async fn expire_locked(self: Arc<Self>, request: Request, ended: usize) {
        let Request {
            ctx,
            rows,
            by,
            reply,
        } = request;
        let expiry = async {
            let _permit = self.detour(by).await?;
            let connection = SharedConnection::open(&ctx.settings().conninfo, by).await?;
            let expiry = self.store.expire(connection.client(), &rows, true);
            let touched = answer_by(connection.connection(), by, expiry).await?;
            connection.close().await;
            Ok(touched)
        };
        let outcome = expiry
            .await
            .map(|touched| {
                let more = touched.iter().filter(|t| matches!(t, Touched::Until(_)));
                ended + more.count()
            })
            .map_err(|failure: Failure| failure.into_error(&ctx, RELEASING));
        let _ = reply.send(outcome);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells everybody why their rows could not be ended.
fn refuse(requests: Vec<Request>, failure: Failure) {
    let mut failure = Some(failure);
    let mut shared = String::new();
    for Request { ctx, reply, .. } in requests {
        let error = match failure.take() {
            Some(failure) => {
                let error = failure.into_error(&ctx, RELEASING);
                shared = format!("{error:#}");
                error
            }
            None => Error::database(format!("{RELEASING} {}: {shared}", ctx.lock_key())),
        };
        let _ = reply.send(Err(error));
    }
}
