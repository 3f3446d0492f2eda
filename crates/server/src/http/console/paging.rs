//! Pages of a list by number, as links.

use std::ops::Range;

use highwater_console::format::count;
use highwater_console::parts::Pager;

use crate::text::parameter;

/// The part of a list that is shown.
pub(super) struct Page {
    pub(super) range: Range<usize>,
    parameter: &'static str,
    number: usize,
    total: usize,
}

impl Page {
    /// The page that `parameter` of the query names, counted from 1.
    pub(super) fn of(
        query: Option<&str>,
        parameter_name: &'static str,
        rows_max: usize,
        total: usize,
    ) -> Page {
        let number = parameter(query, parameter_name).and_then(|text| text.parse::<usize>().ok());
        let pages = total.div_ceil(rows_max).max(1);
        let number = number.unwrap_or(1).clamp(1, pages);
        let start = (number - 1) * rows_max;
        Page {
            range: start..(start + rows_max).min(total),
            parameter: parameter_name,
            number,
            total,
        }
    }

    /// Links to the pages beside it; none if the list has one page.
    pub(super) fn pager(&self, path: &str, nouns: &str) -> Pager {
        let link = |number: usize| format!("{path}?{}={number}", self.parameter);
        if self.range.len() == self.total {
            return Pager::default();
        }
        Pager {
            before: (self.number > 1).then(|| link(self.number - 1)),
            after: (self.range.end < self.total).then(|| link(self.number + 1)),
            text: format!(
                "{} to {} of {} {nouns}",
                count(self.range.start as u64 + 1),
                count(self.range.end as u64),
                count(self.total as u64)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_within_the_list() {
        let page = |query: &str, total| Page::of(Some(query), "page", 10, total);
        assert_eq!(page("", 0).range, 0..0);
        assert_eq!(page("page=2", 25).range, 10..20);
        assert_eq!(page("page=99", 25).range, 20..25);
        assert_eq!(page("page=0", 25).range, 0..10);
        assert_eq!(page("page=x", 5).range, 0..5);
        let pager = page("page=3", 25).pager("/p", "hubs");
        assert_eq!(pager.text, "21 to 25 of 25 hubs");
        assert_eq!(
            (pager.before.as_deref(), pager.after),
            (Some("/p?page=2"), None)
        );
        assert!(page("page=1", 5).pager("/p", "hubs").text.is_empty());
    }
}
