//! Charts as SVG, with both axes logarithmic or as bars, for docs/performance.md.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const SIZE: (f64, f64) = (640.0, 300.0);
/// Left, right, top, bottom.
const MARGIN: (f64, f64, f64, f64) = (64.0, 150.0, 36.0, 44.0);
const COLOURS: [&str; 4] = ["#1f6fb4", "#c8501e", "#2e8b57", "#7a4ca0"];

/// One curve: its name and its points.
pub(crate) type Curve = (&'static str, Vec<(f64, f64)>);

pub(crate) fn lines(file: &str, title: &str, axes: (&str, &str), curves: &[Curve]) {
    let all = || curves.iter().flat_map(|(_, points)| points);
    let (x, y) = (Axis::of(all().map(|point| point.0)), Axis::of(all().map(|point| point.1)));
    let (right, bottom) = (SIZE.0 - MARGIN.1, SIZE.1 - MARGIN.3);
    let at = |point: &(f64, f64)| (x.place(point.0, MARGIN.0, right), y.place(point.1, bottom, MARGIN.2));
    let mut body = String::new();
    for power in x.powers() {
        let (at, top) = (x.place(power, MARGIN.0, right), MARGIN.2);
        line(&mut body, (at, top), (at, bottom), "#ddd", 1);
        text(&mut body, (at, bottom + 16.0), "middle", &short(power));
    }
    for power in y.powers() {
        let at = y.place(power, bottom, MARGIN.2);
        line(&mut body, (MARGIN.0, at), (right, at), "#ddd", 1);
        text(&mut body, (MARGIN.0 - 6.0, at + 4.0), "end", &short(power));
    }
    for ((name, points), colour) in curves.iter().zip(COLOURS) {
        let places: Vec<(f64, f64)> = points.iter().map(at).collect();
        for pair in places.windows(2) {
            line(&mut body, pair[0], pair[1], colour, 2);
        }
        for (cx, cy) in &places {
            writeln!(body, r#"<circle cx="{cx:.1}" cy="{cy:.1}" r="3" fill="{colour}"/>"#).unwrap();
        }
        let (last_x, last_y) = *places.last().unwrap();
        text(&mut body, (last_x + 8.0, last_y + 4.0), "start", name);
    }
    text(&mut body, (f64::midpoint(MARGIN.0, right), SIZE.1 - 8.0), "middle", axes.0);
    text(&mut body, (6.0, MARGIN.2 - 10.0), "start", axes.1);
    save(file, title, &body);
}

pub(crate) fn bars(file: &str, title: &str, rows: &[(String, f64)]) {
    let most = rows.iter().map(|row| row.1).fold(1.0, f64::max);
    let mut body = String::new();
    for ((name, value), number) in rows.iter().zip(0_u8..) {
        let top = MARGIN.2 + 10.0 + f64::from(number) * 28.0;
        let width = value / most * 330.0;
        text(&mut body, (200.0, top + 14.0), "end", name);
        let colour = COLOURS[usize::from(number) % 2];
        writeln!(body, r#"<rect x="206" y="{top:.0}" width="{width:.1}" height="20" fill="{colour}"/>"#)
            .unwrap();
        text(&mut body, (212.0 + width, top + 14.0), "start", &format!("{value:.0}"));
    }
    save(file, title, &body);
}

struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    /// From one power of ten to another.
    fn of(values: impl Iterator<Item = f64>) -> Axis {
        let (least, most) = values.fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(value), b.max(value)));
        Axis { from: least.log10().floor(), to: most.log10().ceil().max(least.log10().floor() + 1.0) }
    }

    fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        from + (value.log10() - self.from) / (self.to - self.from) * (to - from)
    }

    fn powers(&self) -> impl Iterator<Item = f64> {
        let from = self.from;
        (0_u8..)
            .map(move |number| from + f64::from(number))
            .take_while(|at| *at <= self.to)
            .map(|at| 10_f64.powf(at))
    }
}

fn short(value: f64) -> String {
    if value >= 1.0 { format!("{value:.0}") } else { format!("{value}") }
}

fn line(body: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, width: u8) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let place = format!(r#"x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}""#);
    writeln!(body, r#"<line {place} stroke="{colour}" stroke-width="{width}"/>"#).unwrap();
}

fn text(body: &mut String, (x, y): (f64, f64), anchor: &str, says: &str) {
    writeln!(body, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{says}</text>"#).unwrap();
}

fn save(file: &str, title: &str, body: &str) {
    let ((width, height), top) = (SIZE, MARGIN.2 - 20.0);
    let head = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">"#
    );
    let ground = r##"<rect width="100%" height="100%" fill="#fff"/>"##;
    let title = format!(
        r#"<text x="{:.0}" y="{top:.0}" text-anchor="middle" font-size="13">{title}</text>"#,
        width / 2.0
    );
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/plots");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(file), format!("{head}\n{ground}\n{title}\n{body}</svg>\n")).unwrap();
}
