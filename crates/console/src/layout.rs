//! The frame of every page: navigation, banner, panels, dialogs.

use std::borrow::Cow;

use maud::{DOCTYPE, Markup, html};

use crate::parts::{self, Figure};
use crate::version;

/// Forbids inline script and style, frames, and everything from elsewhere.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

/// A screen of the console, as the navigation names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    Overview,
    Jobs,
    Hubs,
    Queues,
    Processors,
    Workflows,
    DeadLetters,
    Circuits,
    Cluster,
    Playground,
}

impl Screen {
    /// Its address, and its name in the navigation.
    fn link(self) -> (&'static str, &'static str) {
        match self {
            Screen::Overview => ("/", "Overview"),
            Screen::Jobs => ("/console/jobs", "Jobs"),
            Screen::Hubs => ("/console/hubs", "Hubs"),
            Screen::Queues => ("/console/queues", "Queues"),
            Screen::Processors => ("/console/processors", "Processors"),
            Screen::Workflows => ("/console/workflows", "Workflows"),
            Screen::DeadLetters => ("/console/dead-letters", "Dead letters"),
            Screen::Circuits => ("/console/circuits", "Circuits"),
            Screen::Cluster => ("/console/cluster", "Cluster"),
            Screen::Playground => ("/console/playground", "Playground"),
        }
    }
}

/// The numbers in the navigation: what the caller may see of the node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NavCounts {
    pub jobs: u64,
    pub hubs: u64,
    pub queues: u64,
    pub processors: u64,
    /// Instances that run.
    pub workflows: u64,
    pub attention: Attention,
}

/// Counts of items that need an operator's decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attention {
    pub dead_letters: u64,
    pub circuits_open: u64,
    pub parked: u64,
}

/// The frame of a page around its view.
#[derive(Clone, Debug, Default)]
pub struct Shell {
    pub counts: NavCounts,
    /// The session's token against cross-site requests; empty without a session.
    pub csrf: String,
    /// The name of the key that is logged in.
    pub key: Option<String>,
}

/// The width of a panel, of a grid of twelve columns. Below 1100 pixels every panel is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The row of figures: no border of its own.
    Figures,
    Full,
    Main,
    Side,
    Half,
}

/// A part of a page that is replaced as a whole while the page is open.
struct Panel {
    /// Unique in the page.
    id: Cow<'static, str>,
    span: Span,
    /// Whether the live stream renders it again. A panel with state of the reader, such as a form, is not live.
    live: bool,
    content: Markup,
}

impl Panel {
    fn class(&self) -> &'static str {
        match self.span {
            Span::Figures => "kpis",
            Span::Full => "panel full",
            Span::Main => "panel main",
            Span::Side => "panel side",
            Span::Half => "panel half",
        }
    }
}

/// A rendered screen, before the frame is put around it.
pub struct View {
    pub screen: Screen,
    pub title: String,
    /// The content of the page's heading; live.
    pub heading: Markup,
    panels: Vec<Panel>,
    /// `<dialog>` elements, which buttons open with `data-dialog`.
    pub dialogs: Markup,
    /// Further scripts, by the names of their assets.
    pub scripts: &'static [&'static str],
}

impl View {
    pub fn new(screen: Screen, title: impl Into<String>, heading: Markup) -> View {
        View {
            screen,
            title: title.into(),
            heading,
            panels: Vec::new(),
            dialogs: html! {},
            scripts: &[],
        }
    }

    /// Adds a panel that the live stream renders again.
    pub(crate) fn live(&mut self, id: impl Into<Cow<'static, str>>, span: Span, content: Markup) {
        self.panels.push(Panel {
            id: id.into(),
            span,
            live: true,
            content,
        });
    }

    /// Adds a panel that the live stream leaves alone.
    pub(crate) fn fixed(&mut self, id: &'static str, span: Span, content: Markup) {
        self.panels.push(Panel {
            id: id.into(),
            span,
            live: false,
            content,
        });
    }

    /// Adds the row of figures.
    pub(crate) fn figures(&mut self, figures: &[Figure]) {
        self.live("figures", Span::Figures, parts::figures(figures));
    }

    /// The live parts by id: navigation, heading, panels.
    pub fn live_parts(self, shell: &Shell) -> Vec<(Cow<'static, str>, String)> {
        let nav = links(self.screen, &shell.counts).into_string();
        let fixed = [
            ("places".into(), nav),
            ("heading".into(), self.heading.into_string()),
        ];
        let live = self.panels.into_iter().filter(|panel| panel.live);
        let panels = live.map(|panel| (panel.id, panel.content.into_string()));
        fixed.into_iter().chain(panels).collect()
    }
}

/// The whole page.
pub fn page(shell: &Shell, view: &View) -> String {
    let body = html! {
        a class="skip" href="#content" { "Skip to the content" }
        div class="app" {
            (navigation(shell, view.screen))
            main id="content" {
                div id="lost" class="banner bad" role="alert" hidden { "No connection to the node, trying again." }
                div id="paused" class="banner" role="status" hidden {
                    "Paused. " button type="button" class="link" data-pause { "Continue" } " or press " kbd { "p" }
                }
                header class="page" id="heading" { (view.heading) }
                div class="grid" {
                    @for panel in &view.panels {
                        section id=(panel.id) class=(panel.class()) { (panel.content) }
                    }
                }
            }
        }
        (dialogs())
        (view.dialogs)
        div id="toasts" aria-live="polite" {}
    };
    document(&view.title, shell, true, view.scripts, &body).into_string()
}

/// The document around a body. `live`: the page opens the live stream.
pub(crate) fn document(
    title: &str,
    shell: &Shell,
    live: bool,
    scripts: &[&str],
    body: &Markup,
) -> Markup {
    let asset = |name: &str| format!("/console/assets/{name}?v={}", version());
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="version" content=(version());
                @if live { meta name="live" content="yes"; }
                meta name="csrf" content=(shell.csrf);
                title { (title) " · Highwater" }
                link rel="icon" href=(asset("icon.svg"));
                link rel="stylesheet" href=(asset("style.css"));
                script src=(asset("theme.js")) {}
                @if live { script defer src=(asset("shell.js")) {} }
                @for script in scripts { script defer src=(asset(script)) {} }
            }
            body { (body) }
        }
    }
}

pub(crate) fn brand() -> Markup {
    html! {
        svg width="22" height="22" viewBox="0 0 22 22" fill="none" stroke-width="2.2"
            stroke-linecap="round" aria-hidden="true" {
            path d="M2 15h5v-5h6V5h7" {}
            path d="M2 19h18" opacity=".35" {}
        }
        "Highwater"
    }
}

fn navigation(shell: &Shell, screen: Screen) -> Markup {
    html! {
        nav aria-label="Main" {
            a class="brand" href="/" { (brand()) }
            div class="places" id="places" { (links(screen, &shell.counts)) }
            div class="switches" {
                button type="button" data-theme-switch title="Theme: system, light or dark" { "Auto" }
                button type="button" data-zone-switch title="Times in UTC or in the local zone" { "UTC" }
                button type="button" data-dialog="keys" title="Keys of the keyboard" { "Keys" }
                @if let Some(key) = &shell.key {
                    div class="who" {
                        (key) " · "
                        button type="button" class="link" data-call="POST /console/logout"
                            data-then="/console/login" { "Log out" }
                    }
                }
            }
        }
    }
}

/// The links of the navigation, with their counts.
fn links(screen: Screen, counts: &NavCounts) -> Markup {
    let attention = &counts.attention;
    let plain = |count: u64| (crate::format::count(count), false);
    let red =
        |count: u64, unit: &str| (format!("{}{unit}", crate::format::count(count)), count > 0);
    let link = |to: Screen, count: Option<(String, bool)>| {
        let (path, name) = to.link();
        entry(path, name, (to == screen).then_some("page"), count)
    };
    html! {
        (link(Screen::Overview, None))
        (link(Screen::Jobs, Some(plain(counts.jobs))))
        (link(Screen::Hubs, Some(plain(counts.hubs))))
        (link(Screen::Queues, Some(plain(counts.queues))))
        (link(Screen::Processors, Some(plain(counts.processors))))
        (link(Screen::Workflows, Some(plain(counts.workflows))))
        (link(Screen::Cluster, None))
        h2 { "Needs a person" }
        (link(Screen::DeadLetters, Some(red(attention.dead_letters, ""))))
        (link(Screen::Circuits, Some(red(attention.circuits_open, " open"))))
        (entry("/console/workflows?state=parked", "Parked", None, Some(red(attention.parked, ""))))
        h2 { "Try" }
        (link(Screen::Playground, None))
        (entry("/api/docs", "HTTP API", None, None))
    }
}

fn entry(path: &str, name: &str, current: Option<&str>, count: Option<(String, bool)>) -> Markup {
    html! {
        a href=(path) aria-current=[current] {
            (name)
            @if let Some((text, bad)) = count {
                span class=(if bad { "count bad" } else { "count" }) { (text) }
            }
        }
    }
}

/// Dialogs of every page.
fn dialogs() -> Markup {
    html! {
        dialog id="keys" aria-labelledby="keys-title" {
            form method="dialog" {
                h2 id="keys-title" { "Keys" }
                dl class="keys" {
                    @for (keys, meaning) in KEYS {
                        dt { @for key in keys.split(' ') { kbd { (key) } " " } }
                        dd { (meaning) }
                    }
                }
                div class="buttons" { button { "Close" } }
            }
        }
        dialog id="ask" aria-labelledby="ask-title" {
            form method="dialog" {
                h2 id="ask-title" { "Are you sure?" }
                p {}
                div class="buttons" {
                    button value="no" { "Cancel" }
                    button value="yes" class="primary" { "Yes" }
                }
            }
        }
        dialog id="search" aria-label="Search names" {
            form method="dialog" {
                input type="text" aria-label="Name" placeholder="Name of a job, hub, queue, processor or workflow"
                    autocomplete="off" size="60";
                ul id="found" {}
                p id="none" class="sub" hidden { "Nothing has this name." }
            }
        }
    }
}

const KEYS: [(&str, &str); 13] = [
    ("g o", "Overview"),
    ("g j", "Jobs"),
    ("g h", "Hubs"),
    ("g q", "Queues"),
    ("g r", "Processors"),
    ("g w", "Workflows"),
    ("g d", "Dead letters"),
    ("g c", "Circuits"),
    ("g p", "Playground"),
    ("/", "search names"),
    ("p", "pause or continue"),
    ("?", "these keys"),
    ("Esc", "close a dialog"),
];
