//! Classifies responses into success, retryable and final failures.

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;

use super::{CallError, CallErrorKind};
use crate::definition::Call;
use crate::machine::Answer;

/// Longer explanations are cut.
const EXPLANATION_CHARS_MAX: usize = 200;

/// Time-outs and 5xx leave the step in doubt; 429 means that the call was not carried out. Any other unexpected
/// status is final.
pub(crate) fn classify(
    call: Option<&Call>,
    status: u16,
    retry_after: Option<Duration>,
    body: Bytes,
) -> Result<Answer, CallError> {
    let is_good = match call {
        Some(call) => call.is_expected(status),
        None => (200..300).contains(&status),
    };
    if is_good {
        return Ok(Answer { status, body });
    }
    let reason = reason(status, &body);
    if call.is_some_and(|call| call.refuse.contains(&status)) {
        return Err(CallError::refused(reason));
    }
    let kind = CallErrorKind::Transient { retry_after };
    Err(match status {
        429 => CallError {
            kind,
            ..CallError::transient(reason)
        },
        408 | 500.. => CallError {
            kind,
            in_doubt: true,
            reason,
        },
        // Apparently carried out, but not as expected.
        200..300 => CallError::permanent(reason).in_doubt(),
        _ => CallError::permanent(reason),
    })
}

fn reason(status: u16, body: &[u8]) -> String {
    let name = StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("status");
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * EXPLANATION_CHARS_MAX)]);
    let text: String = text.trim().chars().take(EXPLANATION_CHARS_MAX).collect();
    match text.is_empty() {
        true => format!("{status} {name}"),
        false => format!("{status} {name}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(status: u16) -> (&'static str, bool) {
        let call = Call {
            service: 0,
            method: "PUT".into(),
            path: crate::expr::Template::parse("/x").unwrap(),
            headers: Vec::new(),
            body: None,
            expect: vec![200, 204],
            refuse: vec![409],
        };
        match classify(Some(&call), status, None, Bytes::new()) {
            Ok(_) => ("good", false),
            Err(error) => match error.kind {
                CallErrorKind::Transient { .. } => ("transient", error.in_doubt),
                CallErrorKind::Permanent => ("permanent", error.in_doubt),
                CallErrorKind::Refused => ("refused", error.in_doubt),
            },
        }
    }

    // proves W2
    #[test]
    fn transient_failures_are_told_from_final_ones() {
        assert_eq!(classified(200), ("good", false));
        assert_eq!(classified(204), ("good", false));
        assert_eq!(classified(201), ("permanent", true));
        assert_eq!(classified(409), ("refused", false));
        assert_eq!(classified(404), ("permanent", false));
        assert_eq!(classified(302), ("permanent", false));
        assert_eq!(classified(429), ("transient", false));
        assert_eq!(classified(408), ("transient", true));
        assert_eq!(classified(500), ("transient", true));
        assert_eq!(classified(503), ("transient", true));
    }

    #[test]
    fn a_reason_quotes_what_the_service_said() {
        let body = Bytes::from_static(b"  no drone is free\n");
        let error = classify(None, 503, None, body).unwrap_err();
        assert_eq!(error.reason, "503 Service Unavailable: no drone is free");
    }
}
