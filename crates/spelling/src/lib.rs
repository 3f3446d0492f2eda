//! The known name that a mistyped one most likely meant, for settings, queries and the command line.
//!
//! ```
//! use highwater_spelling::nearest;
//!
//! assert_eq!(nearest("conut", ["SUM", "COUNT"]), Some("COUNT"));
//! ```

/// The candidate closest to `name`, ignoring case, or `None` if none is close enough to suggest.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = fold(name);
    let limit = (name.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&name, &fold(candidate), limit), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn fold(name: &str) -> Vec<char> {
    name.chars().flat_map(char::to_lowercase).collect()
}

/// Damerau-Levenshtein distance: insertions, deletions, replacements and swaps of neighbours. Returns something above
/// `limit` early when the lengths alone exceed it.
fn distance(a: &[char], b: &[char], limit: usize) -> usize {
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves S1
    #[test]
    fn a_swap_a_missing_letter_and_another_case_are_near() {
        let known = ["DATEADD", "DATEDIFF", "COUNT"];
        assert_eq!(nearest("DATEAD", known), Some("DATEADD"));
        assert_eq!(nearest("conut", known), Some("COUNT"));
        assert_eq!(
            nearest("temprature", ["humidity", "temperature"]),
            Some("temperature")
        );
    }

    #[test]
    fn something_else_is_not_suggested() {
        assert_eq!(nearest("pressure", ["humidity", "temperature"]), None);
        assert_eq!(nearest("x", []), None);
    }
}
