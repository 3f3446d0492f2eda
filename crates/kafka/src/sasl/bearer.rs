//! The message of OAUTHBEARER (RFC 7628): the token of an identity provider.

/// Separates the fields of the message. A client also sends it alone, as the answer to a refusal.
const SEPARATOR: char = '\x01';

/// The answer to a token that is not valid. The client confirms it, and then the login fails.
pub(crate) const INVALID_TOKEN: &str = r#"{"status":"invalid_token"}"#;

/// The first message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BearerToken {
    pub(crate) token: String,
    /// The user that the client wants to act for, if it names one.
    pub(crate) authzid: Option<String>,
}

impl BearerToken {
    /// Reads `n,[a=authzid],^Aauth=Bearer token^A[name=value^A]..^A`. Further fields are ignored.
    pub(super) fn parse(message: &str) -> Option<BearerToken> {
        let message = message.strip_suffix(SEPARATOR)?.strip_suffix(SEPARATOR)?;
        let (header, fields) = message.split_once(SEPARATOR)?;
        let (flag, authzid) = header.strip_suffix(',')?.split_once(',')?;
        let authzid = match authzid {
            "" => None,
            named => Some(super::unescape(named.strip_prefix("a=")?)?),
        };
        let mut fields = fields.split(SEPARATOR);
        let credentials = fields.find_map(|field| field.strip_prefix("auth="))?;
        let (scheme, token) = credentials.split_once(' ')?;
        let valid = matches!(flag, "n" | "y") && scheme.eq_ignore_ascii_case("Bearer");
        valid.then(|| BearerToken {
            token: token.trim().to_owned(),
            authzid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_a_token_and_may_name_a_user() {
        let parse = |message: &str| {
            let parsed = BearerToken::parse(message)?;
            Some((parsed.token, parsed.authzid))
        };
        let token = |authzid: Option<&str>| Some(("a.b.c".into(), authzid.map(str::to_owned)));
        assert_eq!(parse("n,,\x01auth=Bearer a.b.c\x01\x01"), token(None));
        assert_eq!(
            parse("n,a=x=2Cy,\x01host=h\x01auth=bearer  a.b.c\x01port=1\x01\x01"),
            token(Some("x,y"))
        );
        for wrong in [
            "",
            "\x01",
            "n,,\x01auth=Bearer a.b.c\x01",
            "n,,\x01auth=Basic a.b.c\x01\x01",
            "n,,\x01auth=Bearer\x01\x01",
            "n,,\x01\x01",
            "n,\x01auth=Bearer a.b.c\x01\x01",
            "p=tls-unique,,\x01auth=Bearer a.b.c\x01\x01",
            "n,x,\x01auth=Bearer a.b.c\x01\x01",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
