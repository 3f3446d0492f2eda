//! Steps implemented as functions of this process.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use highwater_log::BoxFuture;
use serde_json::Value;

use super::CallError;
use crate::machine::{Answer, Instance};

/// Functions by the names that definitions use.
#[derive(Clone, Default)]
pub struct Functions(BTreeMap<String, Function>);

type Function = Arc<dyn Fn(FunctionCall) -> BoxFuture<Result<Answer, CallError>> + Send + Sync>;

/// The argument of a function.
#[derive(Clone, Debug)]
pub struct FunctionCall {
    pub id: Arc<str>,
    /// The same on every attempt of this step of this instance.
    pub idempotency_key: String,
    pub input: Bytes,
    /// Answers of completed steps, by name.
    pub answers: Vec<(String, Answer)>,
}

impl FunctionCall {
    pub(super) fn new(instance: &Instance, idempotency_key: String) -> FunctionCall {
        let steps = instance.definition.steps.iter().zip(&instance.steps);
        let answers = steps.filter_map(|(step, state)| {
            let answer = state.done.answer.clone()?;
            Some((step.name.clone(), answer))
        });
        FunctionCall {
            id: Arc::clone(&instance.id),
            idempotency_key,
            input: instance.input.clone(),
            answers: answers.collect(),
        }
    }
}

impl Functions {
    pub fn new() -> Functions {
        Functions::default()
    }

    /// Registers a function. Its result is the body of the step's answer.
    pub fn with<W>(
        mut self,
        name: &str,
        function: impl Fn(FunctionCall) -> W + Send + Sync + 'static,
    ) -> Functions
    where
        W: Future<Output = Result<Value, CallError>> + Send + 'static,
    {
        let boxed = move |call: FunctionCall| -> BoxFuture<Result<Answer, CallError>> {
            let work = function(call);
            Box::pin(async move {
                let body = work.await?.to_string();
                Ok(Answer {
                    status: 200,
                    body: body.into(),
                })
            })
        };
        self.0.insert(name.to_owned(), Arc::new(boxed));
        self
    }

    pub(super) fn call(
        &self,
        name: &str,
        call: FunctionCall,
    ) -> Option<BoxFuture<Result<Answer, CallError>>> {
        self.0.get(name).map(|function| function(call))
    }
}
