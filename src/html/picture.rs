//! What all pictures share: their frame, the order of colours, and text that fits.
//!
//! Text uses the fonts of the browser, so its width is an estimate from above.

use maud::{Markup, html};

use crate::text::{printable, shortened};

/// Classes of the colours, in the order of every picture. The last is for what is left over.
const COLOURS: [&str; 8] = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];
/// Ranks that have a colour of their own.
pub const COLOURS_OWN: usize = COLOURS.len() - 1;
/// Characters of a name that are looked at.
const NAME_CHARS_MAX: usize = 160;
/// Bold text is wider than other text by this factor.
const BOLD: f64 = 1.07;
/// A shortened label with fewer characters says nothing.
const LABEL_CHARS_MIN: usize = 6;

/// The class of the colour of a rank, from 0.
pub fn colour(rank: usize) -> &'static str {
    COLOURS.get(rank.min(COLOURS_OWN)).copied().unwrap_or("c8")
}

/// Width and height of a picture, and what tells the ids of its two sizes apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PictureSize {
    /// Width in units of the picture, which are pixels if it is shown at full width.
    pub width: f64,
    /// Height.
    pub height: f64,
    /// Class and end of ids.
    pub class: &'static str,
}

/// The picture in two sizes, for screens and for telephones. The style shows one of them.
pub fn for_both(heights: [f64; 2], draw: impl Fn(PictureSize) -> Markup) -> Markup {
    let [wide, narrow] = heights;
    html! {
        (draw(PictureSize { width: 1060.0, height: wide, class: "wide" }))
        (draw(PictureSize { width: 358.0, height: narrow, class: "narrow" }))
    }
}

/// An `<svg>` with a title and a description for screen readers.
pub fn picture(id: &str, title: &str, description: &str, size: PictureSize, content: &Markup) -> Markup {
    let PictureSize { width, height, class } = size;
    let (title_id, description_id) = (format!("{id}-{class}-t"), format!("{id}-{class}-d"));
    html! {
        svg class=(class) viewBox=(format!("0 0 {width} {height}")) role="img"
            aria-labelledby=(format!("{title_id} {description_id}")) {
            title id=(title_id) { (printable(title)) }
            desc id=(description_id) { (printable(description)) }
            (content)
        }
    }
}

/// A patch of a colour and its meaning, for each series.
pub fn legend(names: &[(&str, String)]) -> Markup {
    html! {
        ul.legend {
            @for (class, name) in names { li { span class={ "swatch " (class) } {} (printable(name)) } }
        }
    }
}

/// A name from data, on its own whatever its direction.
pub fn name(text: &str) -> Markup {
    html! { bdi { (printable(text)) } }
}

/// Width of a text in units of its font size, an estimate from above.
fn ems(text: &str) -> f64 {
    let width = |c: char| match c {
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | '/' | ' ' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.98,
        'A'..='Z' => 0.75,
        '\0'..='\u{10ff}' => 0.63,
        _ => 1.05,
    };
    text.chars().map(width).sum::<f64>() * BOLD
}

/// The text if all of it fits into `width` at a font of `size`.
pub fn whole(text: &str, width: f64, size: f64) -> Option<String> {
    fitting(text, width, size).filter(|shown| *shown == printable(text))
}

/// The name of a file, directory or model: whole, or its last component, or as much as fits.
pub fn fitting_name(text: &str, width: f64, size: f64) -> Option<String> {
    let last = || text.rsplit_once('/').and_then(|(_, last)| whole(last, width, size));
    whole(text, width, size).or_else(last).or_else(|| fitting(text, width, size))
}

/// The text, or as much of its start and end as fits into `width` at a font of `size`. `None` if nothing useful does.
pub fn fitting(text: &str, width: f64, size: f64) -> Option<String> {
    let text = shortened(&printable(text), NAME_CHARS_MAX);
    let mut count = text.chars().count();
    let mut shown = text.clone();
    while ems(&shown) * size > width {
        count = count.checked_sub(1).filter(|count| *count >= LABEL_CHARS_MIN)?;
        shown = shortened(&text, count);
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fits_or_is_left_out() {
        assert_eq!(fitting("models", 100.0, 12.0).as_deref(), Some("models"));
        let short = fitting("a-very-long-name-of-a-model", 100.0, 12.0).unwrap();
        assert!(
            short.contains('…') && short.starts_with('a') && short.ends_with('l') && ems(&short) * 12.0 <= 100.0,
            "{short}"
        );
        assert_eq!((fitting("models", 10.0, 12.0), fitting("", 0.0, 12.0)), (None, Some(String::new())));
        assert!(fitting(&"漢字".repeat(9), 90.0, 12.0).is_some_and(|text| (6..=7).contains(&text.chars().count())));
        assert_eq!(fitting_name("home/me/models", 60.0, 12.0).as_deref(), Some("models"));
        assert_eq!((fitting_name("a/b", 90.0, 12.0).as_deref(), whole("models", 20.0, 12.0)), (Some("a/b"), None));
        assert_eq!(fitting("a\u{202e}b\n", 100.0, 12.0).as_deref(), Some("a?b?"));
    }

    #[test]
    fn names_are_escaped_and_the_last_colour_is_for_the_rest() {
        let size = PictureSize { width: 10.0, height: 10.0, class: "wide" };
        let text = picture("p", "<script>", "a \"b\"\u{1b}", size, &name("</svg>&")).into_string();
        assert!(
            text.contains("&lt;script&gt;") && text.contains("&lt;/svg&gt;&amp;") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert_eq!([colour(0), colour(6), colour(7), colour(usize::MAX)], ["c1", "c7", "c8", "c8"]);
    }
}
