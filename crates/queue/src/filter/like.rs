//! The patterns of `LIKE`: `%` is any text, `_` one character.
//!
//! Matching backtracks to the last `%` only, so its cost is at most the product of both lengths, and both are bounded.

/// Longer texts and patterns match nothing, and miss nothing: the result is unknown.
const TEXT_CHARS_MAX: usize = 16 << 10;
const PATTERN_CHARS_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    AnyText,
    AnyCharacter,
    Character(char),
}

/// Whether the text matches the pattern; `None` if one of them is too long, or the escape ends the pattern.
pub(super) fn matches(text: &str, pattern: &str, escape: Option<char>) -> Option<bool> {
    let pieces = pieces(pattern, escape)?;
    let text: Vec<char> = text.chars().take(TEXT_CHARS_MAX + 1).collect();
    (text.len() <= TEXT_CHARS_MAX).then(|| matches_pieces(&text, &pieces))
}

fn pieces(pattern: &str, escape: Option<char>) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        pieces.push(match character {
            _ if Some(character) == escape => Piece::Character(characters.next()?),
            '%' => Piece::AnyText,
            '_' => Piece::AnyCharacter,
            _ => Piece::Character(character),
        });
        if pieces.len() > PATTERN_CHARS_MAX {
            return None;
        }
    }
    Some(pieces)
}

fn matches_pieces(text: &[char], pieces: &[Piece]) -> bool {
    let (mut at, mut piece) = (0, 0);
    // The last `%`, and where the text after it begins.
    let mut retry: Option<(usize, usize)> = None;
    while at < text.len() {
        match pieces.get(piece) {
            Some(Piece::AnyText) => {
                retry = Some((piece, at));
                piece += 1;
                continue;
            }
            Some(Piece::AnyCharacter) => {}
            Some(Piece::Character(character)) if *character == text[at] => {}
            _ => match retry {
                Some((star, begin)) => {
                    retry = Some((star, begin + 1));
                    (at, piece) = (begin + 1, star + 1);
                    continue;
                }
                None => return false,
            },
        }
        (at, piece) = (at + 1, piece + 1);
    }
    pieces[piece..].iter().all(|piece| *piece == Piece::AnyText)
}
