//! Mutates inputs. Texts are mutated word by word, so that most results still resemble the language, and now and then
//! byte by byte, so that some do not.

use highwater_env::random::Random;

/// Longer inputs are cut: except for limits, a fault in a long input also shows in a short one.
const BYTES_MAX: usize = 20_000;

pub(crate) struct Mutator<'d> {
    pub random: Random,
    /// Words of the language.
    pub words: &'d [String],
    /// The inputs are binary: most mutations keep offsets.
    pub binary: bool,
}

impl Mutator<'_> {
    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }

    /// Applies a few mutations; `other` is an input to copy from.
    pub(crate) fn change(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut changed = input.to_vec();
        for _ in 0..=self.below(4) {
            changed = match self.below(8) {
                0 => self.bytes(&changed),
                1..=5 if self.binary => self.in_place(changed, other),
                _ => self.tokens(&changed, other),
            };
        }
        changed.truncate(BYTES_MAX);
        changed
    }

    /// A bit, a byte, a few bytes that are zero or all ones, or a piece of another input.
    fn in_place(&mut self, mut input: Vec<u8>, other: &[u8]) -> Vec<u8> {
        if input.is_empty() {
            return input;
        }
        let at = self.below(input.len());
        let end = (at + 1 + self.below(8)).min(input.len());
        match self.below(5) {
            0 => input[at] ^= 1 << self.below(8),
            1 => input[at] = self.below(256) as u8,
            2 => input[at..end].fill([0, 0x7f, 0x80, 0xff][self.below(4)]),
            3 => {
                let from = self.below(input.len());
                let until = (from + end - at).min(input.len());
                input.copy_within(from..until, at.min(from));
            }
            _ => {
                let from = self.below(other.len() + 1);
                let borrowed = other[from..].iter().take(end - at);
                let bytes = input[at..end].iter_mut();
                bytes.zip(borrowed).for_each(|(old, new)| *old = *new);
            }
        }
        input
    }

    fn bytes(&mut self, input: &[u8]) -> Vec<u8> {
        const ODD: [&[u8]; 10] = [
            b"\0",
            b"\xff",
            b"\xef\xbb\xbf",
            b"\r\n",
            b"\n",
            b"\\u12",
            "\u{1F600}".as_bytes(),
            b"'",
            b"\"",
            b"/*",
        ];
        let mut out = input.to_vec();
        let at = self.below(out.len() + 1);
        match self.below(5) {
            0 if at < out.len() => out[at] = self.below(256) as u8,
            1 if at < out.len() => out[at] ^= 1 << self.below(8),
            2 => out.truncate(at),
            3 if at < out.len() => drop(out.remove(at)),
            _ => {
                let odd = ODD[self.below(ODD.len())];
                out.splice(at..at, odd.iter().copied());
            }
        }
        out
    }

    fn tokens(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut tokens = tokens(input);
        let at = self.below(tokens.len() + 1);
        let to = (at + 1 + self.below(6)).min(tokens.len());
        match self.below(9) {
            0 => drop(tokens.drain(at.min(to)..to)),
            1 => {
                let copy = tokens[at.min(to)..to].to_vec();
                let times = [1, 1, 1, 2, 9, 150][self.below(6)];
                tokens.splice(at..at, copy.repeat(times));
            }
            2 if !tokens.is_empty() => {
                let (a, b) = (self.below(tokens.len()), self.below(tokens.len()));
                tokens.swap(a, b);
            }
            3 => {
                let (open, close, times) =
                    (&b"("[..], &b")"[..], [1, 1, 2, 99, 300][self.below(5)]);
                tokens.splice(to..to, vec![close; times]);
                tokens.splice(at.min(to)..at.min(to), vec![open; times]);
            }
            4 | 5 => {
                let borrowed = self::tokens(other);
                let from = self.below(borrowed.len() + 1);
                let until = (from + 1 + self.below(25)).min(borrowed.len());
                let end = if self.below(2) == 0 { to } else { at };
                tokens.splice(at.min(end)..end, borrowed[from.min(until)..until].to_vec());
            }
            _ if self.words.is_empty() => {}
            6 => {
                let word = self.words[self.below(self.words.len())].as_bytes();
                let mut out = tokens[..at].concat();
                out.extend_from_slice(b" ");
                out.extend_from_slice(word);
                out.extend_from_slice(b" ");
                out.extend(tokens[at..].concat());
                return out;
            }
            _ => {
                // Replacing a word by a word keeps the form of the statement.
                let names = |token: &&[u8]| token[0].is_ascii_alphanumeric() || token[0] == b'\'';
                let words: Vec<usize> =
                    (0..tokens.len()).filter(|at| names(&tokens[*at])).collect();
                if !words.is_empty() {
                    let at = words[self.below(words.len())];
                    tokens[at] = self.words[self.below(self.words.len())].as_bytes();
                }
                return tokens.concat();
            }
        }
        tokens.concat()
    }
}

/// Words, numbers, texts in quotes, runs of blanks, and single characters.
pub(crate) fn tokens(input: &[u8]) -> Vec<&[u8]> {
    let mut tokens = Vec::new();
    let mut rest = input;
    while let Some(first) = rest.first() {
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
        let run = |is: &dyn Fn(&u8) -> bool| rest.iter().take_while(|byte| is(byte)).count();
        let length = match first {
            b'\'' | b'"' => {
                let end = rest[1..]
                    .iter()
                    .position(|byte| byte == first || *byte == b'\n');
                end.map_or(rest.len(), |end| end + 2)
            }
            byte if word(byte) => run(&word),
            byte if byte.is_ascii_whitespace() => run(&u8::is_ascii_whitespace),
            b'!' | b'<' | b'>' => run(&|byte| b"!<>=".contains(byte)),
            _ => 1,
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after;
    }
    tokens
}

/// Removes words while the text still `fails`.
pub(crate) fn smallest(input: &[u8], fails: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut smallest = input.to_vec();
    let mut size = tokens(&smallest).len() / 2;
    let mut tries = 0;
    while size > 0 {
        let mut at = 0;
        while at < tokens(&smallest).len() && tries < 3_000 {
            tries += 1;
            let parts = tokens(&smallest);
            let end = (at + size).min(parts.len());
            let shorter = [&parts[..at], &parts[end..]].concat().concat();
            match fails(&shorter) {
                true => smallest = shorter,
                false => at += size,
            }
        }
        size /= 2;
    }
    smallest
}
