//! The language, as a table of expressions over one message, and its laws.

use proptest::prelude::*;

use super::expression::Expression;
use super::parser::parse_condition;
use super::rule::MatchedCopy;
use super::*;

/// A red apple of 150 g, ripe, from Spain.
fn apple() -> MessageProperties {
    let mut message = MessageProperties::default();
    message.set_system(SystemProperty::Label, Some("fruit".into()));
    message.set_system(SystemProperty::CorrelationId, Some("c-1".into()));
    message.set_user("colour", Some(Value::text("red")));
    message.set_user("grams", Some(Value::Integer(150)));
    message.set_user("price", Some(Value::Float(1.5)));
    message.set_user("ripe", Some(Value::Bool(true)));
    message.set_user("picked", Some(Value::Time(1_000)));
    message.set_user("photo", Some(Value::Opaque));
    message.set_user("empty", None);
    message.set_user("share", Some(Value::text("10%")));
    message
}

fn value(text: &str) -> Option<Value> {
    let expression = parse_condition(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    expression.value(&apple())
}

fn truth(text: &str) -> Option<bool> {
    match value(text) {
        Some(Value::Bool(truth)) => Some(truth),
        None => None,
        other => panic!("{text}: {other:?}"),
    }
}

// proves A3
#[test]
fn expressions_are_true_false_or_unknown() {
    let (yes, no, unknown) = (Some(true), Some(false), None);
    for (text, expected) in [
        ("colour = 'red'", yes),
        ("COLOUR = 'red' and Grams >= 150", yes),
        ("colour = 'Red'", no),
        ("user.colour <> 'green'", yes),
        ("[colour] != \"colour\"", no),
        ("sys.Label = 'fruit' AND sys.subject = 'fruit'", yes),
        ("label = 'fruit'", unknown),
        ("sys.To = 'x'", unknown),
        ("grams > 150", no),
        ("grams < 150.5", yes),
        ("price * 2 = 3 AND price + 1 > 2", yes),
        ("grams / 4 = 37 AND grams % 4 = 2", yes),
        ("-grams = 0 - 150 AND +grams = 150", yes),
        ("1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9", yes),
        ("1.5E3 = 1500", yes),
        ("grams / 0 = 1", unknown),
        ("9223372036854775807 + 1 > 0", unknown),
        ("grams = '150'", unknown),
        ("NOT grams = '150'", unknown),
        ("photo = photo", unknown),
        ("ripe", yes),
        ("ripe = TRUE AND ripe <> FALSE", yes),
        ("ripe > FALSE", unknown),
        ("weight = 1", unknown),
        ("NOT weight = 1", unknown),
        ("weight = 1 OR ripe", yes),
        ("ripe OR weight = 1", yes),
        ("weight = 1 OR NOT ripe", unknown),
        ("weight = 1 AND NOT ripe", no),
        ("weight = 1 AND ripe", unknown),
        ("weight IS NULL AND empty IS NULL", yes),
        ("colour IS NOT NULL", yes),
        ("NULL IS NULL", yes),
        ("NULL = NULL", unknown),
        (
            "EXISTS(colour) AND EXISTS(empty) AND NOT EXISTS(weight)",
            yes,
        ),
        ("exists(sys.Label) AND NOT exists(sys.To)", yes),
        ("colour IN ('green', 'red')", yes),
        ("colour NOT IN ('green', 'blue')", yes),
        ("colour IN ('green', weight)", unknown),
        ("colour IN ('red', weight)", yes),
        ("weight IN (1, 2)", unknown),
        ("colour LIKE 'r%'", yes),
        ("colour LIKE '_ed' AND colour NOT LIKE '_d'", yes),
        ("colour LIKE '%e%'", yes),
        ("colour LIKE ''", no),
        ("grams LIKE '1%'", unknown),
        ("weight LIKE '%'", unknown),
        ("share LIKE '10\\%' ESCAPE '\\'", yes),
        ("colour LIKE 're\\%' ESCAPE '\\'", no),
        ("'it''s' = 'it' + '''s'", yes),
        ("property('sys.Label') = p('colour')", no),
        ("property('user.grams') = 150", yes),
        ("NOT NOT ripe", yes),
    ] {
        assert_eq!(truth(text), expected, "{text}");
    }
}

// proves A3
#[test]
fn a_mistake_is_told_with_its_position() {
    for (text, expected) in [
        (
            "",
            "expected a property or a constant, found the end (at character 1)",
        ),
        (
            "colour =",
            "expected a property or a constant, found the end (at character 9)",
        ),
        ("colour = 'red", "a quote is not closed (at character 10)"),
        (
            "a = b = c",
            "expected the end or an operator, found `=` (at character 7)",
        ),
        ("a NOT b", "expected IN or LIKE, found `b` (at character 7)"),
        (
            "a IN ()",
            "expected a property or a constant, found `)` (at character 7)",
        ),
        (
            "a LIKE 'x' ESCAPE 'ab'",
            "the escape must be one character (at character 19)",
        ),
        ("a = @p", "parameters are not supported (at character 5)"),
        (
            "a = 99999999999999999999",
            "`99999999999999999999` is no number (at character 5)",
        ),
        ("a = ?", "`?` is not expected (at character 5)"),
        (
            "newid() = 'x'",
            "there is no function `newid`; `property('name')` is one (at character 1)",
        ),
        (
            "and = 1",
            "expected a property or a constant, found `and` (at character 1)",
        ),
    ] {
        let error = parse_condition(text).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
    }
    let unknown = parse_condition("1 = 1 AND sys.Size > 1").unwrap_err();
    assert_eq!(unknown.position, 11);
    assert!(
        unknown
            .message
            .starts_with("there is no property `sys.Size`")
    );
    let deep = format!("{}1{} = 1", "(".repeat(33), ")".repeat(33));
    assert_eq!(parse_condition(&deep).unwrap_err().position, 34);
    let long = format!("a = '{}'", "x".repeat(1024));
    assert_eq!(parse_condition(&long).unwrap_err().position, 1025);
    // The longest chain is no danger to the stack.
    let chain = format!("1{} > 0", "+1".repeat(500));
    assert_eq!(truth(&chain), Some(true));
}

fn rule(name: &str, filter: Filter, action: Option<&str>) -> Rule {
    Rule {
        name: name.into(),
        filter,
        action: action.map(|text| SqlAction::parse(text).unwrap()),
        created_ms: 0,
    }
}

fn sql(text: &str) -> Filter {
    Filter::Sql(SqlFilter::parse(text).unwrap())
}

fn copies(rules: &[Rule]) -> Vec<MatchedCopy> {
    Rule::copies(rules.iter(), &apple())
}

// proves A3
#[test]
fn rules_without_actions_make_one_copy_and_each_rule_with_one_makes_its_own() {
    assert_eq!(
        copies(&[]),
        Vec::<MatchedCopy>::new(),
        "no rule, no message"
    );
    assert_eq!(copies(&[rule("no", Filter::False, None)]).len(), 0);
    let both = [
        rule("a", Filter::True, None),
        rule("b", sql("ripe"), None),
        rule("c", sql("NOT ripe"), Some("SET x = 1")),
    ];
    assert_eq!(copies(&both), [Vec::new()]);
    let changed = [
        rule("a", Filter::True, None),
        rule(
            "b",
            sql("grams > 100"),
            Some(
                "SET grams = grams + 1; SET twice = grams * 2; REMOVE colour; SET sys.Label = 'sold'; SET gone = weight;",
            ),
        ),
    ];
    let user = |name: &str, value| PropertyChange {
        property: Property::User(name.into()),
        value,
    };
    let expected = vec![
        user("grams", Some(Value::Integer(151))),
        user("twice", Some(Value::Integer(302))),
        user("colour", None),
        PropertyChange {
            property: Property::System(SystemProperty::Label),
            value: Some(Value::text("sold")),
        },
        user("gone", None),
        user("RuleName", Some(Value::text("b"))),
    ];
    assert_eq!(copies(&changed), [Vec::new(), expected]);
}

// proves A3
#[test]
fn a_correlation_filter_wants_all_its_values_in_their_case() {
    let matches = |system: &[(SystemProperty, &str)], user: &[(&str, Value)]| {
        let filter = Filter::Correlation(CorrelationFilter {
            system: system
                .iter()
                .map(|(p, text)| (*p, (*text).to_owned()))
                .collect(),
            user: user
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        });
        let rule = rule("r", filter, None);
        rule.check().unwrap();
        !copies(&[rule]).is_empty()
    };
    let label = (SystemProperty::Label, "fruit");
    assert!(matches(
        &[label, (SystemProperty::CorrelationId, "c-1")],
        &[]
    ));
    assert!(matches(
        &[label],
        &[
            ("colour", Value::text("red")),
            ("grams", Value::Float(150.0))
        ]
    ));
    assert!(!matches(&[(SystemProperty::Label, "Fruit")], &[]));
    assert!(!matches(&[label], &[("colour", Value::text("RED"))]));
    assert!(!matches(&[label, (SystemProperty::To, "x")], &[]));
    assert!(!matches(&[], &[("grams", Value::text("150"))]));
    let none = rule("r", Filter::Correlation(CorrelationFilter::default()), None);
    assert_eq!(none.check(), Err(RuleError::Conditions));
    for name in ["", "a/b", &"x".repeat(51)] {
        assert!(rule(name, Filter::True, None).check().is_err(), "{name}");
    }
}

// proves A3
#[test]
fn an_action_is_a_list_of_statements() {
    for (text, expected) in [
        ("SET a", "expected `=`, found the end (at character 6)"),
        (
            "SET a = 1 REMOVE b",
            "expected the end or an operator, found `REMOVE` (at character 11)",
        ),
        (
            "a = 1",
            "expected SET or REMOVE, found `a` (at character 1)",
        ),
    ] {
        let error = SqlAction::parse(text).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
    }
    assert!(SqlAction::parse("SET a = 'x', REMOVE [b c]; SET sys.To = 'y'").is_ok());
}

// proves A3
#[test]
fn an_action_makes_no_copy_much_larger_than_its_message() {
    let mut message = MessageProperties::default();
    message.set_user("big", Some(Value::text("x".repeat(40 << 10))));
    let action = SqlAction::parse("SET a = big; SET b = big; SET c = 'small'").unwrap();
    let changes = action.run(&mut message);
    let lengths: Vec<_> = changes
        .iter()
        .map(|change| match &change.value {
            Some(Value::Text(text)) => Some(text.len()),
            _ => None,
        })
        .collect();
    assert_eq!(lengths, [Some(40 << 10), None, Some(5)]);
}

/// The logic of three values by its definition: the smaller, the larger, the opposite of -1, 0 and 1.
fn level(truth: Option<bool>) -> i8 {
    truth.map_or(0, |truth| if truth { 1 } else { -1 })
}

/// A condition with its value by the oracle.
fn condition() -> impl Strategy<Value = (String, i8)> {
    let leaf = prop_oneof![
        Just(("ripe".to_owned(), 1)),
        Just(("grams < 0".to_owned(), -1)),
        Just(("weight = 1".to_owned(), 0)),
    ];
    leaf.prop_recursive(5, 24, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| (format!("({} AND {})", a.0, b.0), a.1.min(b.1))),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| (format!("({} OR {})", a.0, b.0), a.1.max(b.1))),
            inner.prop_map(|a| (format!("(NOT {})", a.0), -a.1)),
        ]
    })
}

/// Whether a text matches a pattern, by trying everything.
fn matches_by_trial(text: &[char], pattern: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('%', rest)) => (0..=text.len()).any(|at| matches_by_trial(&text[at..], rest)),
        Some((wanted, rest)) => text.split_first().is_some_and(|(first, text)| {
            (*wanted == '_' || wanted == first) && matches_by_trial(text, rest)
        }),
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused_within_it(text in "\\PC{0,60}") {
        if let Err(error) = parse_condition(&text) {
            prop_assert!(error.position <= text.chars().count() + 1);
        }
        let _ = SqlAction::parse(&text);
    }

    #[test]
    fn any_tokens_are_parsed_or_refused(words in prop::collection::vec(
        prop::sample::select(vec![
            "a", "sys.Label", "'x'", "1", "1.5", "(", ")", ",", "=", "<>", "+", "-", "*", "/", "%", "AND", "OR", "NOT",
            "IN", "LIKE", "IS", "NULL", "EXISTS", "ESCAPE", "SET", "REMOVE", ";", "TRUE", "[b]", ".", "p",
        ]), 0..30)) {
        let text = words.join(" ");
        if let Ok(expression) = parse_condition(&text) {
            expression.selects(&apple());
        }
        if let Ok(action) = SqlAction::parse(&text) {
            Rule::copies([rule("r", Filter::True, Some(action.text()))].iter(), &apple());
        }
    }

    #[test]
    fn conditions_follow_the_logic_of_three_values((text, expected) in condition()) {
        if text.chars().count() <= EXPRESSION_CHARS_MAX {
            let condition: Expression = parse_condition(&text).unwrap();
            let truth = match condition.value(&apple()) {
                Some(Value::Bool(truth)) => Some(truth),
                _ => None,
            };
            prop_assert_eq!(level(truth), expected, "{}", text);
        }
    }

    #[test]
    fn like_is_what_trying_everything_finds(text in "[ab%]{0,8}", pattern in "[ab%_]{0,8}") {
        let characters = |text: &str| text.chars().collect::<Vec<_>>();
        let expected = matches_by_trial(&characters(&text), &characters(&pattern));
        prop_assert_eq!(like::matches(&text, &pattern, None), Some(expected));
    }
}
