//! Accuracy over cost as an SVG image: one dot for each system, and a line through those that are best for their cost.

use std::fmt::Write as _;

use super::statistics::real;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 220.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 60.0;
/// The number of horizontal lines above 0 %.
const LINES: usize = 5;

/// A system in the plot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dot<'a> {
    pub(super) name: &'a str,
    /// 0 to 1.
    pub(super) accuracy: f64,
    pub(super) interval: [f64; 2],
    pub(super) usd_per_thousand: f64,
    pub(super) is_best_for_its_cost: bool,
}

/// The image. `note` stands below the axis.
pub(super) fn svg(dots: &[Dot<'_>], note: &str) -> String {
    let mut image = String::new();
    // Writing to a string cannot fail.
    let _ = draw(&mut image, dots, note);
    image
}

/// Costs differ by factors, so the axis is logarithmic. Free systems stand at its beginning.
struct Axis {
    lowest: f64,
    highest: f64,
}

impl Axis {
    fn of(dots: &[Dot<'_>]) -> Self {
        let costs = dots.iter().map(|dot| dot.usd_per_thousand).filter(|cost| *cost > 0.0);
        let (lowest, highest) =
            costs.fold((f64::INFINITY, 0.0_f64), |(low, high), cost| (low.min(cost), high.max(cost)));
        Self { lowest, highest }
    }

    fn x(&self, cost: f64) -> f64 {
        let is_on_axis = cost > 0.0 && self.highest > self.lowest;
        let share =
            if is_on_axis { (cost / self.lowest).ln() / (self.highest / self.lowest).ln() } else { 0.0 };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }
}

fn y(accuracy: f64) -> f64 {
    HEIGHT - BOTTOM - accuracy * (HEIGHT - TOP - BOTTOM)
}

fn draw(out: &mut String, dots: &[Dot<'_>], note: &str) -> std::fmt::Result {
    let axis = Axis::of(dots);
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">"#
    )?;
    writeln!(out, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
    let end = WIDTH - RIGHT;
    for line in 0..=LINES {
        let share = real(line) / real(LINES);
        let at = y(share);
        writeln!(out, r##"<line x1="{LEFT}" y1="{at:.1}" x2="{end}" y2="{at:.1}" stroke="#ddd"/>"##)?;
        writeln!(
            out,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{:.0} %</text>"#,
            LEFT - 8.0,
            at + 4.0,
            100.0 * share
        )?;
    }
    let (low, bottom) = (HEIGHT - BOTTOM + 20.0, HEIGHT - 12.0);
    if axis.highest > 0.0 {
        writeln!(out, r#"<text x="{LEFT}" y="{low:.1}">${:.4}</text>"#, axis.lowest)?;
        writeln!(
            out,
            r#"<text x="{end}" y="{low:.1}" text-anchor="end">${:.4} per 1,000 questions, logarithmic</text>"#,
            axis.highest
        )?;
    }
    writeln!(out, r##"<text x="{LEFT}" y="{bottom:.1}" fill="#555">{}</text>"##, escaped(note))?;
    let mut best: Vec<&Dot<'_>> = dots.iter().filter(|dot| dot.is_best_for_its_cost).collect();
    best.sort_by(|a, b| a.usd_per_thousand.total_cmp(&b.usd_per_thousand));
    let points: Vec<String> = best
        .iter()
        .map(|dot| format!("{:.1},{:.1}", axis.x(dot.usd_per_thousand), y(dot.accuracy)))
        .collect();
    writeln!(out, r##"<polyline points="{}" fill="none" stroke="#1a73e8"/>"##, points.join(" "))?;
    for dot in dots {
        let (x, middle) = (axis.x(dot.usd_per_thousand), y(dot.accuracy));
        let [lower, upper] = dot.interval.map(y);
        let colour = if dot.is_best_for_its_cost { "#1a73e8" } else { "#888" };
        writeln!(
            out,
            r#"<line x1="{x:.1}" y1="{lower:.1}" x2="{x:.1}" y2="{upper:.1}" stroke="{colour}" stroke-opacity="0.4"/>"#
        )?;
        writeln!(out, r#"<circle cx="{x:.1}" cy="{middle:.1}" r="4" fill="{colour}"/>"#)?;
        writeln!(out, r#"<text x="{:.1}" y="{:.1}">{}</text>"#, x + 7.0, middle + 4.0, escaped(dot.name))?;
    }
    writeln!(out, "</svg>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(name: &str, accuracy: f64, usd_per_thousand: f64, is_best_for_its_cost: bool) -> Dot<'_> {
        Dot {
            name,
            accuracy,
            interval: [accuracy - 0.05, accuracy + 0.05],
            usd_per_thousand,
            is_best_for_its_cost,
        }
    }

    #[test]
    fn each_system_is_a_dot_at_its_cost_and_accuracy() {
        let dots = [
            dot("cheap", 0.5, 0.01, true),
            dot("a < b & c", 0.4, 0.1, false),
            dot("expensive", 1.0, 1.0, true),
        ];
        let image = svg(&dots, "simulated");
        assert_eq!(image.matches("<circle").count(), 3);
        // The middle of the axis in factors, and the line through the two best ones.
        assert!(image.contains(r#"<circle cx="355.0""#) && image.contains("a &lt; b &amp; c"), "{image}");
        assert!(image.contains(r#"points="70.0,245.0 640.0,30.0""#), "{image}");
        assert!(image.contains("$0.0100") && image.contains("$1.0000") && image.contains("simulated"));
    }

    #[test]
    fn free_systems_stand_at_the_beginning_of_the_axis() {
        let image = svg(&[dot("free", 0.0, 0.0, false)], "");
        assert!(image.contains(r#"<circle cx="70.0" cy="460.0""#), "{image}");
    }
}
