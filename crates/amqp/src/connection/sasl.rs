//! SASL: the client chooses a mechanism and sends one response; the owner decides.

use super::{Connection, Event, Phase};
use crate::frame::{self, FrameKind};
use crate::performative::{SaslInit, SaslMechanisms, SaslOutcome, Symbols};

/// Codes of the outcome.
const OK: u8 = 0;
const REFUSED: u8 = 1;

impl Connection {
    pub(super) fn offer_mechanisms(&mut self) {
        let mechanisms = SaslMechanisms {
            mechanisms: Symbols(self.options.mechanisms.clone()),
        };
        frame::put(&mut self.output, FrameKind::Sasl, 0, |out| {
            mechanisms.write(out)
        });
    }

    pub(super) fn sasl_init(&mut self, init: SaslInit) {
        self.phase = Phase::Login;
        self.events.push_back(Event::Login {
            mechanism: init.mechanism.0,
            response: init.initial_response.unwrap_or_default(),
        });
    }

    /// Answers a login. The header of AMQP follows only when the client has sent its own: some clients lose bytes that
    /// arrive together with the outcome.
    pub fn finish_login(&mut self, accepted: bool) {
        if self.phase != Phase::Login {
            return;
        }
        let outcome = SaslOutcome {
            code: if accepted { OK } else { REFUSED },
            additional_data: None,
        };
        frame::put(&mut self.output, FrameKind::Sasl, 0, |out| {
            outcome.write(out)
        });
        match accepted {
            true => self.phase = Phase::AmqpHeader,
            false => self.end(),
        }
    }
}
