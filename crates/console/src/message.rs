//! A page with only a message: an error, or that the node is still starting.

use maud::html;

use crate::layout::{Shell, brand, document};

/// An error of the API, as a page.
#[derive(Clone, Debug)]
pub struct Message {
    pub title: String,
    /// The text and code of the error, as in the terminal.
    pub text: String,
    pub hint: String,
}

impl Message {
    pub fn page(&self) -> String {
        let body = html! {
            main class="center" {
                div class="login-brand" { a class="brand" href="/" { (brand()) } }
                h1 { (self.title) }
                p { (self.text) }
                @if !self.hint.is_empty() { p class="sub" { (self.hint) } }
                p { a class="button" href="/" { "Overview" } }
            }
        };
        document(&self.title, &Shell::default(), false, &[], &body).into_string()
    }
}
