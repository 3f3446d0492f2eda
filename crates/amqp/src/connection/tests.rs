//! A client in a few lines against the machine: normal use, and hostile clients.

use proptest::prelude::*;

use super::*;
use crate::performative::{Disposition, Flow, Performative, Role, SaslInit, Symbol, Transfer};
use crate::value::Value;

const NOW: Duration = Duration::from_secs(1000);

/// A connection and the bytes that its client has sent.
struct Bench {
    connection: Connection,
    input: BytesMut,
}

impl Bench {
    fn new(options: Options) -> Bench {
        Bench {
            connection: Connection::new(options, NOW),
            input: BytesMut::new(),
        }
    }

    /// After SASL, Open and Begin.
    fn opened(options: Options) -> Bench {
        let mut bench = Bench::new(options);
        bench.input.extend_from_slice(&AMQP_HEADER);
        bench.write(0, |out| {
            Open {
                container_id: "client".into(),
                max_frame_size: Some(1024),
                ..Open::default()
            }
            .write(out);
        });
        bench.begin(1, 10);
        assert_eq!(bench.event(), None);
        bench.frames();
        bench
    }

    fn begin(&mut self, channel: u16, incoming_window: u32) {
        self.write(channel, |out| {
            Begin {
                next_outgoing_id: u32::MAX,
                incoming_window,
                outgoing_window: 100,
                ..Begin::default()
            }
            .write(out);
        });
    }

    fn write(&mut self, channel: u16, write: impl FnOnce(&mut BytesMut)) {
        frame::put(&mut self.input, FrameKind::Amqp, channel, write);
    }

    fn event(&mut self) -> Option<Event> {
        self.connection.next_event(&mut self.input, NOW).unwrap()
    }

    fn error(&mut self) -> ProtocolError {
        loop {
            match self.connection.next_event(&mut self.input, NOW) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no error"),
                Err(error) => return error,
            }
        }
    }

    /// The performatives written so far.
    fn frames(&mut self) -> Vec<Performative> {
        let output = self.connection.output();
        if output.starts_with(b"AMQP") {
            let _ = output.split_to(8);
        }
        let mut frames = Vec::new();
        while let Some(frame) = frame::take(output, 1 << 20).unwrap() {
            if !frame.body.is_empty() {
                frames.push(Performative::read(&frame.body).unwrap().0);
            }
        }
        frames
    }

    fn attach(&mut self, handle: u32, role: Role) -> LinkId {
        self.write(1, |out| {
            Attach {
                name: format!("link-{handle}"),
                handle,
                role,
                initial_delivery_count: Some(u32::MAX),
                ..Attach::default()
            }
            .write(out);
        });
        match self.event() {
            Some(Event::Attach { link, .. }) => link,
            other => panic!("{other:?}"),
        }
    }

    /// A link on which the client may send two messages of up to 100 bytes.
    fn sending(&mut self) -> LinkId {
        let link = self.attach(0, Role::Sender);
        self.connection.accept_link(
            link,
            LinkTerms {
                message_bytes_max: 100,
                credit: 2,
                ..LinkTerms::default()
            },
        );
        link
    }

    fn transfer(&mut self, id: Option<u32>, more: bool, payload: &[u8]) {
        self.write(1, |out| {
            Transfer {
                delivery_id: id,
                more,
                ..Transfer::default()
            }
            .write(out);
            out.extend_from_slice(payload);
        });
    }
}

fn condition_of(frames: &[Performative]) -> Option<String> {
    let error = match frames.last()? {
        Performative::Close(close) => close.error.clone(),
        Performative::Detach(detach) => detach.error.clone(),
        _ => None,
    };
    error.map(|error| error.condition.into_owned())
}

#[test]
fn sasl_comes_before_the_header_of_amqp() {
    let mut bench = Bench::new(Options::default());
    bench.input.extend_from_slice(&SASL_HEADER);
    let init = SaslInit {
        mechanism: Symbol("PLAIN".into()),
        initial_response: Some(Bytes::from_static(b"\0user\0secret")),
        hostname: None,
    };
    frame::put(&mut bench.input, FrameKind::Sasl, 0, |out| init.write(out));
    // A client that does not wait for the outcome.
    bench.input.extend_from_slice(&AMQP_HEADER);
    let login = Event::Login {
        mechanism: "PLAIN".into(),
        response: Bytes::from_static(b"\0user\0secret"),
    };
    assert_eq!(bench.event(), Some(login));
    assert_eq!(bench.event(), None);
    let output = bench.connection.output().split();
    assert!(output.starts_with(&SASL_HEADER));
    bench.connection.finish_login(true);
    let output = bench.connection.output().split();
    assert!(!output.ends_with(&AMQP_HEADER), "it waits for the client's");
    assert_eq!(bench.event(), None);
    assert_eq!(&bench.connection.output()[..], AMQP_HEADER);
}

#[test]
fn a_refused_login_ends_the_connection() {
    let mut bench = Bench::new(Options::default());
    bench.input.extend_from_slice(&SASL_HEADER);
    let init = SaslInit::default();
    frame::put(&mut bench.input, FrameKind::Sasl, 0, |out| init.write(out));
    assert!(matches!(bench.event(), Some(Event::Login { .. })));
    bench.connection.finish_login(false);
    assert!(bench.connection.is_closed());
    bench.input.extend_from_slice(&AMQP_HEADER);
    assert_eq!(bench.event(), None);
}

#[test]
fn a_message_in_pieces_is_delivered_whole_and_settlement_renews_credit() {
    let mut bench = Bench::opened(Options::default());
    let link = bench.sending();
    let frames = bench.frames();
    assert!(matches!(&frames[0], Performative::Attach(attach)
        if attach.role == Role::Receiver && attach.max_message_size == Some(100)));
    assert!(matches!(&frames[1], Performative::Flow(flow)
        if flow.link_credit == Some(2) && flow.delivery_count == Some(u32::MAX)));
    bench.transfer(Some(7), true, b"ab");
    bench.transfer(None, true, b"cd");
    assert_eq!(bench.event(), None);
    assert_eq!(bench.connection.incomplete_bytes(), 4);
    bench.transfer(Some(7), false, b"ef");
    bench.transfer(Some(8), false, b"gh");
    let deliver = |id, payload: &'static [u8]| {
        Some(Event::Delivery(Delivery {
            link,
            id,
            message_format: 0,
            settled: false,
            transaction: None,
            payload: Bytes::from_static(payload),
        }))
    };
    assert_eq!(bench.event(), deliver(7, b"abcdef"));
    assert_eq!(bench.event(), deliver(8, b"gh"));
    assert_eq!(bench.connection.incomplete_bytes(), 0);
    assert_eq!(bench.frames(), []);
    bench.connection.settle(link, 7, 8, &Outcome::Accepted);
    let frames = bench.frames();
    assert!(matches!(&frames[0], Performative::Disposition(settled)
        if settled.role == Role::Receiver && settled.settled && (settled.first, settled.last) == (7, Some(8))));
    assert!(matches!(&frames[1], Performative::Flow(flow)
        if flow.link_credit == Some(2) && flow.delivery_count == Some(1)));
}

#[test]
fn credit_and_size_are_limits() {
    let mut bench = Bench::opened(Options::default());
    bench.sending();
    bench.transfer(Some(0), false, b"a");
    bench.transfer(Some(1), false, b"b");
    bench.transfer(Some(2), false, b"c");
    for _ in 0..2 {
        assert!(matches!(bench.event(), Some(Event::Delivery(_))));
    }
    assert!(matches!(bench.event(), Some(Event::Detached { .. })));
    let told = condition_of(&bench.frames());
    assert_eq!(told.as_deref(), Some(condition::TRANSFER_LIMIT_EXCEEDED));
    // Transfers in flight are ignored.
    bench.transfer(Some(3), false, b"d");
    assert_eq!(bench.event(), None);

    let mut bench = Bench::opened(Options::default());
    bench.sending();
    bench.frames();
    bench.transfer(Some(0), true, &[0; 60]);
    bench.transfer(None, true, &[0; 60]);
    assert_eq!(bench.event(), None);
    assert_eq!(bench.connection.incomplete_bytes(), 0, "it is dropped");
    bench.transfer(None, false, &[0; 60]);
    assert_eq!(bench.event(), None);
    let frames = bench.frames();
    let Some(Performative::Disposition(told)) = frames.first() else {
        panic!("{frames:?}");
    };
    let error = AmqpError::new(
        condition::MESSAGE_SIZE_EXCEEDED,
        "a message is larger than the 100 bytes that the link takes",
    );
    assert_eq!(told.state, Outcome::Rejected(error).state());
    bench.transfer(Some(1), false, b"small");
    assert!(
        matches!(bench.event(), Some(Event::Delivery(_))),
        "the link is as before"
    );
    // A message without an end costs its link.
    bench.transfer(Some(2), true, &[0; 900]);
    bench.transfer(None, true, &[0; 900]);
    assert!(matches!(bench.event(), Some(Event::Detached { .. })));
    let told = condition_of(&bench.frames());
    assert_eq!(told.as_deref(), Some(condition::MESSAGE_SIZE_EXCEEDED));
}

#[test]
fn aborted_messages_give_their_credit_back() {
    let mut bench = Bench::opened(Options::default());
    bench.sending();
    for id in 0..50 {
        bench.transfer(Some(id), true, b"part");
        bench.write(1, |out| {
            Transfer {
                aborted: true,
                ..Transfer::default()
            }
            .write(out);
        });
        assert_eq!(bench.event(), None, "message {id}");
    }
    assert_eq!(bench.connection.incomplete_bytes(), 0);
}

#[test]
fn the_window_of_a_session_is_renewed_and_incomplete_messages_are_bounded() {
    let options = Options {
        incoming_window: 4,
        incomplete_bytes_max: 90,
        ..Options::default()
    };
    let mut bench = Bench::opened(options);
    bench.sending();
    bench.frames();
    for _ in 0..8 {
        bench.transfer(Some(0), true, &[0; 10]);
        assert_eq!(bench.event(), None);
    }
    let renewed = bench.frames().into_iter();
    let renewed = renewed.filter(
        |frame| matches!(frame, Performative::Flow(flow) if flow.handle.is_none() && flow.incoming_window == 4),
    );
    assert_eq!(renewed.count(), 4);
    bench.transfer(None, true, &[0; 20]);
    assert!(bench.error().to_string().contains("incomplete"));
    let told = condition_of(&bench.frames());
    assert_eq!(told.as_deref(), Some(condition::RESOURCE_LIMIT_EXCEEDED));
}

fn give(bench: &mut Bench, next_incoming_id: u32, window: u32, credit: u32, drain: bool) {
    bench.write(1, |out| {
        Flow {
            next_incoming_id: Some(next_incoming_id),
            incoming_window: window,
            handle: Some(5),
            delivery_count: Some(0),
            link_credit: Some(credit),
            drain,
            ..Flow::default()
        }
        .write(out);
    });
}

#[test]
fn messages_are_cut_to_the_clients_frames_and_wait_for_its_window() {
    let mut bench = Bench::opened(Options::default());
    let link = bench.attach(5, Role::Receiver);
    bench.connection.accept_link(link, LinkTerms::default());
    bench.frames();
    let message = |bytes| OutgoingMessage {
        payload: Bytes::from(vec![7; bytes]),
        settled: true,
        tag: None,
    };
    assert!(
        !bench.connection.send(link, message(1)),
        "there is no credit"
    );
    give(&mut bench, 0, 2, 5, false);
    assert_eq!(bench.event(), Some(Event::Credit { link }));
    assert_eq!(bench.connection.sendable(link), 2);
    assert!(bench.connection.send(link, message(2500)));
    assert_eq!(bench.frames().len(), 2, "the window has two transfers");
    assert_eq!(bench.connection.sendable(link), 0);
    give(&mut bench, 2, 10, 5, false);
    assert_eq!(bench.event(), Some(Event::Credit { link }));
    let frames = bench.frames();
    assert!(matches!(&frames[..], [Performative::Transfer(last)] if !last.more));
    assert_eq!(bench.connection.sendable(link), 4);
    // The rest of the credit is taken back.
    give(&mut bench, 3, 10, 5, true);
    assert_eq!(bench.event(), Some(Event::Credit { link }));
    bench.connection.finish_drain(link);
    let frames = bench.frames();
    assert!(matches!(&frames[..], [Performative::Flow(flow)]
        if flow.drain && flow.link_credit == Some(0) && flow.delivery_count == Some(5)));
}

fn settle_as(bench: &mut Bench, first: u32, last: u32, code: u64, fields: Vec<Value<'static>>) {
    let state = Value::Described(Box::new((Value::U64(code), Value::List(fields))));
    bench.write(1, |out| {
        Disposition {
            role: Role::Receiver,
            first,
            last: Some(last),
            state,
            ..Disposition::default()
        }
        .write(out);
    });
}

/// A link that has sent this many messages with tags 0, 1, ..
fn sent_with_tags(options: Options, count: u8) -> (Bench, LinkId) {
    let mut bench = Bench::opened(options);
    let link = bench.attach(5, Role::Receiver);
    bench.connection.accept_link(link, LinkTerms::default());
    give(&mut bench, 0, 10, 10, false);
    assert_eq!(bench.event(), Some(Event::Credit { link }));
    for tag in 0..count {
        let message = OutgoingMessage {
            payload: Bytes::from_static(&[7]),
            settled: false,
            tag: Some([tag; 16]),
        };
        assert!(bench.connection.send(link, message));
    }
    bench.frames();
    (bench, link)
}

// proves A2
#[test]
fn messages_with_a_tag_are_settled_in_two_steps_and_once() {
    let (mut bench, link) = sent_with_tags(Options::default(), 3);
    let reason = (Value::symbol("Reason"), Value::string("bad"));
    let error = vec![
        Value::symbol("x"),
        Value::string("why"),
        Value::Map(vec![reason.clone()]),
    ];
    let error = Value::Described(Box::new((Value::U64(0x1d), Value::List(error))));
    settle_as(&mut bench, 1, 2, 0x25, vec![error]);
    let Some(Event::Disposition {
        link: of,
        deliveries,
        outcome,
        settled,
        transaction: None,
    }) = bench.event()
    else {
        panic!("no disposition");
    };
    assert_eq!((of, settled), (link, false));
    let tags: Vec<u8> = deliveries.iter().map(|delivery| delivery.tag[0]).collect();
    assert_eq!(tags, [1, 2]);
    assert_eq!(outcome.kind, OutcomeKind::Rejected);
    assert_eq!(outcome.details, [reason]);
    assert_eq!(outcome.description.as_deref(), Some("why"));
    bench
        .connection
        .confirm(link, 1, 2, &outcome.kind.confirmation());
    let frames = bench.frames();
    assert!(matches!(&frames[..], [Performative::Disposition(told)]
        if told.role == Role::Sender && told.settled && told.last == Some(2)
            && told.state == Outcome::RejectedByClient.state()));
    // A second time they are not known.
    settle_as(&mut bench, 1, 1, 0x24, Vec::new());
    assert_eq!(bench.event(), None);
    let frames = bench.frames();
    assert!(matches!(&frames[..], [Performative::Disposition(told)]
        if matches!(&told.state, Value::Described(state) if state.0 == Value::U64(0x25))));
    settle_as(&mut bench, 0, 0, 0x27, vec![Value::Null, Value::Bool(true)]);
    let kind = OutcomeKind::Modified {
        undeliverable_here: true,
    };
    assert!(
        matches!(bench.event(), Some(Event::Disposition { outcome, .. }) if outcome.kind == kind)
    );
}

#[test]
fn the_oldest_message_is_forgotten_when_a_client_settles_too_few() {
    let options = Options {
        tracked_max: 2,
        ..Options::default()
    };
    let (mut bench, _) = sent_with_tags(options, 3);
    settle_as(&mut bench, 0, 9, 0x24, Vec::new());
    let Some(Event::Disposition { deliveries, .. }) = bench.event() else {
        panic!("no disposition");
    };
    let ids: Vec<u32> = deliveries.iter().map(|delivery| delivery.id).collect();
    assert_eq!(ids, [1, 2]);
}

// proves A2
#[test]
fn a_client_that_drains_without_credit_is_answered_at_once() {
    let (mut bench, link) = sent_with_tags(Options::default(), 0);
    give(&mut bench, 0, 10, 0, true);
    assert_eq!(bench.event(), Some(Event::Credit { link }));
    assert_eq!(bench.connection.credit(link), 0);
    let frames = bench.frames();
    assert!(matches!(&frames[..], [Performative::Flow(flow)] if flow.drain));
}

#[test]
fn credit_that_comes_before_the_link_is_accepted_counts() {
    let mut bench = Bench::opened(Options::default());
    let link = bench.attach(5, Role::Receiver);
    give(&mut bench, 0, 10, 3, false);
    assert_eq!(bench.event(), None);
    bench.connection.accept_link(link, LinkTerms::default());
    assert_eq!(bench.event(), Some(Event::Credit { link }));
    assert_eq!(bench.connection.sendable(link), 3);
}

#[test]
fn nothing_is_written_on_what_the_client_has_ended() {
    let mut bench = Bench::opened(Options::default());
    let link = bench.attach(0, Role::Sender);
    bench.write(1, |out| End::default().write(out));
    assert_eq!(bench.event(), Some(Event::Detached { link }));
    assert!(matches!(&bench.frames()[..], [Performative::End(_)]));
    bench.connection.accept_link(link, LinkTerms::default());
    bench
        .connection
        .refuse_link(link, AmqpError::new(condition::NOT_FOUND, ""));
    bench.connection.settle(link, 0, 0, &Outcome::Accepted);
    assert_eq!(bench.frames(), []);
    // Late frames for the session are ignored.
    bench.write(1, |out| Detach::default().write(out));
    bench.write(1, |out| End::default().write(out));
    assert_eq!(bench.event(), None);
    assert_eq!(bench.frames(), []);
    // The channel can be used again.
    bench.begin(1, 10);
    assert_eq!(bench.event(), None);
}

#[test]
fn a_refused_link_has_no_terminus_and_its_handle_is_free_after_the_client_confirms() {
    let mut bench = Bench::opened(Options::default());
    let link = bench.attach(3, Role::Receiver);
    let error = AmqpError::new(condition::NOT_FOUND, "there is no such hub");
    bench.connection.refuse_link(link, error);
    let frames = bench.frames();
    assert!(matches!(&frames[0], Performative::Attach(attach) if attach.source == Value::Null));
    assert_eq!(condition_of(&frames).as_deref(), Some(condition::NOT_FOUND));
    let confirm = Detach {
        handle: 3,
        closed: true,
        error: None,
    };
    bench.write(1, |out| confirm.write(out));
    assert_eq!(bench.event(), None);
    assert_eq!(bench.frames(), [], "a confirmation is not confirmed");
    bench.attach(3, Role::Receiver);
}

#[test]
fn sessions_links_and_frames_are_limited() {
    let small = || Options {
        sessions_max: 2,
        links_max: 2,
        frame_bytes_max: 2048,
        ..Options::default()
    };
    let mut bench = Bench::opened(small());
    bench.begin(2, 1);
    assert!(bench.error().to_string().contains("channel 2"));

    let mut bench = Bench::opened(small());
    for handle in 0..2 {
        let link = bench.attach(handle, Role::Receiver);
        // Refused links count until the client confirms it.
        bench
            .connection
            .refuse_link(link, AmqpError::new(condition::NOT_FOUND, ""));
    }
    bench.write(1, |out| {
        let handle = 2;
        Attach {
            handle,
            ..Attach::default()
        }
        .write(out);
    });
    assert!(bench.error().to_string().contains("too many links"));

    let mut bench = Bench::opened(small());
    bench.input.extend_from_slice(&[0, 0, 0x08, 1, 2, 0, 0, 0]);
    assert_eq!(
        bench.error(),
        ProtocolError::FrameLength {
            length: 2049,
            max: 2048
        }
    );
    let told = condition_of(&bench.frames());
    assert_eq!(told.as_deref(), Some(condition::FRAMING_ERROR));
    assert!(bench.connection.is_closed());
}

#[test]
fn frames_out_of_place_end_the_connection() {
    type Write = fn(&mut BytesMut);
    let cases: [(u16, Write); 6] = [
        (9, |out| Attach::default().write(out)),
        (1, |out| Transfer::default().write(out)),
        (1, |out| Detach::default().write(out)),
        (1, |out| {
            Flow {
                handle: Some(4),
                ..Flow::default()
            }
            .write(out)
        }),
        (0, |out| Open::default().write(out)),
        (0, |out| SaslInit::default().write(out)),
    ];
    for (channel, write) in cases {
        let mut bench = Bench::opened(Options::default());
        bench.write(channel, write);
        bench.error();
        assert!(condition_of(&bench.frames()).is_some());
    }
    let mut bench = Bench::new(Options::default());
    bench.input.extend_from_slice(b"GET / HTTP/1.1\r\n");
    assert!(matches!(bench.error(), ProtocolError::Header(_)));
    assert_eq!(&bench.connection.output()[..], SASL_HEADER);
}

#[test]
fn heartbeats_go_out_and_an_idle_client_is_closed() {
    let mut bench = Bench::opened(Options::default());
    let tick =
        |bench: &mut Bench, seconds| bench.connection.tick(NOW + Duration::from_secs(seconds));
    tick(&mut bench, 0).unwrap();
    tick(&mut bench, 14).unwrap();
    assert!(bench.connection.output().is_empty());
    tick(&mut bench, 15).unwrap();
    assert_eq!(
        &bench.connection.output().split()[..],
        [0, 0, 0, 8, 2, 0, 0, 0]
    );
    // An empty frame keeps the connection.
    bench.input.extend_from_slice(&[0, 0, 0, 8, 2, 0, 0, 0]);
    let later = NOW + Duration::from_secs(200);
    bench
        .connection
        .next_event(&mut bench.input, later)
        .unwrap();
    tick(&mut bench, 300).unwrap();
    assert_eq!(tick(&mut bench, 440), Err(ProtocolError::Idle(240)));
    assert!(bench.connection.is_closed());
}

#[test]
fn dispositions_of_the_client_change_nothing() {
    let mut bench = Bench::opened(Options::default());
    let settled = Disposition {
        role: Role::Receiver,
        first: 0,
        last: Some(u32::MAX),
        settled: true,
        ..Disposition::default()
    };
    bench.write(1, |out| settled.write(out));
    assert_eq!(bench.event(), None);
    assert_eq!(bench.frames(), []);
}

/// Frames that a client might send, right and wrong ones.
fn some_frame() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![0u32..4, any::<u32>()];
    let body =
        (0u8..12, number.clone(), number, any::<[bool; 3]>()).prop_map(|(kind, a, b, flags)| {
            let mut out = BytesMut::new();
            let role = if flags[0] {
                Role::Sender
            } else {
                Role::Receiver
            };
            match kind {
                0 => Begin {
                    next_outgoing_id: a,
                    incoming_window: b,
                    ..Begin::default()
                }
                .write(&mut out),
                1 | 2 => Attach {
                    handle: a % 4,
                    role,
                    ..Attach::default()
                }
                .write(&mut out),
                3 | 4 => Flow {
                    handle: flags[1].then_some(a % 4),
                    link_credit: Some(b),
                    drain: flags[0],
                    echo: flags[2],
                    incoming_window: a,
                    delivery_count: Some(a),
                    ..Flow::default()
                }
                .write(&mut out),
                5..=8 => {
                    let aborted = flags[0] && flags[1];
                    Transfer {
                        handle: a % 4,
                        delivery_id: Some(b),
                        more: flags[2],
                        aborted,
                        ..Transfer::default()
                    }
                    .write(&mut out);
                    out.extend_from_slice(b"some payload");
                }
                9 => Disposition {
                    role,
                    first: a,
                    last: Some(b),
                    ..Disposition::default()
                }
                .write(&mut out),
                10 => Detach {
                    handle: a % 4,
                    ..Detach::default()
                }
                .write(&mut out),
                _ => End::default().write(&mut out),
            }
            let mut framed = BytesMut::new();
            frame::put(&mut framed, FrameKind::Amqp, 1, |into| {
                into.extend_from_slice(&out)
            });
            framed.to_vec()
        });
    prop_oneof![
        20 => body,
        1 => prop::collection::vec(any::<u8>(), 1..30),
    ]
}

proptest! {
    /// For any input the machine neither panics nor exceeds its limits, and the owner's answers fit.
    #[test]
    fn any_frames_are_survived(frames in prop::collection::vec(some_frame(), 0..60), cuts in any::<u8>()) {
        let options = Options { links_max: 3, incomplete_bytes_max: 60, ..Options::default() };
        let mut bench = Bench::opened(options);
        let bytes = frames.concat();
        for part in bytes.chunks(usize::from(cuts).max(1)) {
            bench.input.extend_from_slice(part);
            loop {
                match bench.connection.next_event(&mut bench.input, NOW) {
                    Ok(None) => break,
                    Err(_) => return Ok(()),
                    Ok(Some(Event::Attach { link, attach })) => match attach.role {
                        Role::Sender => {
                            let message_bytes_max = 30;
                            let terms = LinkTerms { message_bytes_max, credit: 3, ..LinkTerms::default() };
                            bench.connection.accept_link(link, terms);
                        }
                        Role::Receiver if cuts % 2 == 0 => bench.connection.accept_link(link, LinkTerms::default()),
                        Role::Receiver => {
                            bench.connection.refuse_link(link, AmqpError::new(condition::NOT_ALLOWED, ""));
                        }
                    },
                    Ok(Some(Event::Delivery(delivery))) => {
                        prop_assert!(delivery.payload.len() <= 30);
                        bench.connection.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
                    }
                    Ok(Some(Event::Credit { link })) => {
                        let payload = Bytes::from_static(&[1; 2000]);
                        bench.connection.send(link, OutgoingMessage { payload, settled: false, tag: Some([1; 16]) });
                        bench.connection.finish_drain(link);
                    }
                    Ok(Some(_)) => {}
                }
                prop_assert!(bench.connection.incomplete_bytes() <= 60);
            }
        }
        // Everything written can be read by a client.
        bench.frames();
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400), opened in any::<bool>()) {
        let mut bench = match opened {
            true => Bench::opened(Options::default()),
            false => Bench::new(Options::default()),
        };
        bench.input.extend_from_slice(&bytes);
        while let Ok(Some(_)) = bench.connection.next_event(&mut bench.input, NOW) {}
    }
}
