//! The login page. It works without script.

use maud::html;

use crate::layout::{Shell, brand, document};

/// The login form.
#[derive(Clone, Debug, Default)]
pub struct Login {
    /// Where to go after the login: a path of the console.
    pub next: String,
    /// The name that was tried.
    pub name: String,
    /// Why the last try failed.
    pub error: Option<String>,
}

impl Login {
    pub fn page(&self) -> String {
        let body = html! {
            main class="login" {
                div class="brand" { (brand()) }
                form class="panel" method="post" action="/console/login" {
                    h1 { "Log in" }
                    p class="sub" { "With the name and the secret of a key of this node." }
                    input type="hidden" name="next" value=(self.next);
                    label class="field" {
                        span { "Key" }
                        input name="name" value=(self.name) autocomplete="username" required autofocus;
                    }
                    label class="field" {
                        span { "Secret" }
                        input name="secret" type="password" autocomplete="current-password" required;
                    }
                    button class="primary" { "Log in" }
                    @if let Some(error) = &self.error {
                        p class="field-error" role="alert" { (error) }
                    }
                }
            }
        };
        document("Log in", &Shell::default(), false, &[], &body).into_string()
    }
}
