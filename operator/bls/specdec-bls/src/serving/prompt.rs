//! One prompt in flight: its answer, and where its calls and its parts go.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use super::bls::Bls;
use super::reply::Reply;
use super::row::Row;
use triton::{InferenceCall, Level, log};

use crate::answer::{Answer, End, Io};
use crate::engine::Call;
use crate::error::Error;
use crate::lock::locked;
use crate::part::Part;
use crate::task::Task;

/// What the client reads where this library itself fails.
const INTERNAL: &str = "tensorrt_llm_bls failed on this request: the server's log has the details";

/// One prompt in flight.
pub struct Prompt {
    pub number: u64,
    bls: Arc<Bls>,
    task: Arc<Task>,
    row: usize,
    reply: Arc<Reply>,
    /// None once it has ended.
    answer: Mutex<Option<Answer>>,
    /// The call that is ended when the client goes.
    flight: Mutex<Option<Arc<InferenceCall>>>,
}

impl Prompt {
    /// The prompt of place `row` in its request.
    pub fn new(
        number: u64,
        bls: Arc<Bls>,
        task: Arc<Task>,
        row: usize,
        reply: Arc<Reply>,
        answer: Answer,
    ) -> Self {
        Self {
            number,
            bls,
            task,
            row,
            reply,
            answer: Mutex::new(Some(answer)),
            flight: Mutex::new(None),
        }
    }

    /// Tell the answer some news; what it wants then is done. `batch` is the gathering's number of
    /// the call that the news is about.
    pub fn tell(self: &Arc<Self>, batch: Option<u64>, news: impl FnOnce(&mut Answer, &mut dyn Io)) {
        let mut answer = locked(&self.answer);
        let mut wishes = Wishes {
            prompt: self,
            batch,
            ended: false,
        };
        if let Some(answer) = answer.as_mut() {
            let told = catch_unwind(AssertUnwindSafe(|| news(answer, &mut wishes)));
            if told.is_err() {
                log(Level::Error, "tensorrt_llm_bls: an answer failed");
                wishes.close(|reply| reply.fail(triton::Error::internal(INTERNAL).into()));
            }
        }
        if wishes.ended {
            *answer = None;
        }
        let batch = wishes.batch;
        drop(answer);
        if batch.is_some() {
            // It has no further call to bring along.
            self.bls.gathered(batch, None);
        }
    }

    /// Look whether the client is still there.
    pub fn look(self: &Arc<Self>) {
        if self.reply.cancelled()
            && let Some(flight) = locked(&self.flight).as_ref()
        {
            flight.cancel();
        }
        self.tell(None, |answer, io| answer.tick(io));
    }

    /// The call that is ended when the client goes; None when it is over.
    pub fn flies(&self, flight: Option<Arc<InferenceCall>>) {
        *locked(&self.flight) = flight;
    }
}

struct Wishes<'a> {
    prompt: &'a Arc<Prompt>,
    batch: Option<u64>,
    ended: bool,
}

impl Wishes<'_> {
    fn row(&self, call: Call, ahead: Option<u64>) -> Row {
        Row {
            prompt: Arc::clone(self.prompt),
            call,
            ahead,
        }
    }

    fn close(&mut self, say: impl FnOnce(&Reply)) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // Before the end is sent: who has the answer finds its counts in the metrics.
        self.prompt.bls.ended(self.prompt.number);
        say(&self.prompt.reply);
    }
}

impl Io for Wishes<'_> {
    fn call(&mut self, call: Call) {
        let round = call.round;
        let row = self.row(call, None);
        if round {
            self.prompt.bls.gathered(self.batch.take(), Some(row));
        } else {
            self.prompt.bls.alone(row);
        }
    }

    fn ahead(&mut self, number: u64, call: Call) -> bool {
        let free = self.prompt.bls.take_ahead();
        if free {
            self.prompt.bls.alone(self.row(call, Some(number)));
        }
        free
    }

    fn part(&mut self, part: Part) {
        let Prompt {
            reply, row, task, ..
        } = self.prompt.as_ref();
        reply.part(*row, task, part);
    }

    fn end(&mut self, end: End) {
        self.close(|reply| match end {
            End::Done => reply.done(),
            End::Cancelled => reply.fail(Error::Cancelled),
            End::Failed(error) => reply.fail(error),
        });
    }

    fn cancelled(&self) -> bool {
        self.prompt.reply.cancelled()
    }
}
