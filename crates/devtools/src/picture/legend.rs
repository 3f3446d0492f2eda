//! The legend below the plot, with the number of events of each kind.

use super::label_layout::text_width;
use super::plot_content::{arrow, cross, diamond, dot};
use super::svg::{WIDTH, line, text};
use super::{LANE_COLOURS, Picture, PointKind, with_thousands};

const ROW: f64 = 26.0;

/// Draws the legend from this position down and returns its height.
pub(super) fn draw(out: &mut String, picture: &Picture, left: f64, top: f64) -> f64 {
    let mut layout = LegendLayout {
        out,
        left,
        x: left,
        y: top + 12.0,
    };
    let plain = if picture.lanes().is_empty() {
        ["on", "adjusted"]
    } else {
        ["neutral"; 2]
    };
    let count = |kind| with_thousands(picture.count(kind));
    layout.item(
        34.0,
        &format!("on time ({})", count(PointKind::OnTime)),
        plain[0],
        |out, x, y| {
            dot(out, "dot", (x + 17.0, y), 5.0);
        },
    );
    let adjusted = format!(
        "adjusted, as the arrow shows ({})",
        count(PointKind::Adjusted)
    );
    layout.item(22.0, &adjusted, plain[1], |out, x, y| {
        arrow(out, x + 11.0, y + 9.0, y - 9.0, 4.0);
        dot(out, "hollow", (x + 11.0, y + 9.0), 4.0);
        dot(out, "dot", (x + 11.0, y - 9.0), 4.0);
    });
    layout.item(
        26.0,
        &format!("dropped ({})", count(PointKind::Dropped)),
        "dropped",
        |out, x, y| {
            cross(out, (x + 13.0, y), 5.0);
        },
    );
    match picture.watermarks.as_slice() {
        [] => {}
        [_] => layout.item(
            34.0,
            "watermark: nothing may land below it",
            "water",
            |out, x, y| {
                line(out, "watermark", (x + 4.0, y), (x + 30.0, y));
            },
        ),
        _ => lanes(&mut layout, picture),
    }
    if !picture.revisions.is_empty() {
        let label = format!(
            "early results ({})",
            with_thousands(picture.revisions.len())
        );
        layout.item(26.0, &label, "neutral", |out, x, y| {
            diamond(out, (x + 13.0, y));
        });
    }
    layout.y - top + ROW - 12.0
}

fn lanes(layout: &mut LegendLayout, picture: &Picture) {
    layout.break_row();
    let lanes = picture.lanes();
    for (i, lane) in lanes.iter().take(LANE_COLOURS).enumerate() {
        let label = if i == 0 {
            format!("{lane} and its watermark")
        } else {
            (*lane).to_owned()
        };
        layout.item(44.0, &label, &format!("l{i}"), lane_swatch);
    }
    if lanes.len() > LANE_COLOURS {
        layout.item(44.0, "others", "rest", lane_swatch);
    }
}

fn lane_swatch(out: &mut String, x: f64, y: f64) {
    dot(out, "dot", (x + 7.0, y), 5.0);
    line(out, "watermark thin", (x + 16.0, y), (x + 40.0, y));
}

/// Places items side by side and starts a new row when one is full.
struct LegendLayout<'a> {
    out: &'a mut String,
    left: f64,
    x: f64,
    y: f64,
}

impl LegendLayout<'_> {
    fn item(
        &mut self,
        symbol_width: f64,
        label: &str,
        colour: &str,
        symbol: impl Fn(&mut String, f64, f64),
    ) {
        let width = symbol_width + 6.0 + text_width(label, 13.0);
        if self.x > self.left && self.x + width > WIDTH - self.left {
            self.break_row();
        }
        self.out.push_str(&format!("<g class=\"{colour}\">"));
        symbol(self.out, self.x, self.y);
        self.out.push_str("</g>\n");
        text(
            self.out,
            "legend",
            self.x + symbol_width + 6.0,
            self.y + 4.5,
            label,
        );
        self.x += width + 18.0;
    }

    fn break_row(&mut self) {
        self.x = self.left;
        self.y += ROW;
    }
}
