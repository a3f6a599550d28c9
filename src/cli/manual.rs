//! The manual page, made from the definition of the arguments and the text below the long help.

use std::io;

use clap::CommandFactory as _;
use clap_mangen::Man;

use super::args::{AFTER_LONG_HELP, Args};

/// The page as `man` takes it.
pub(crate) fn page() -> io::Result<String> {
    let man = Man::new(Args::command());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    push_sections(&mut page, AFTER_LONG_HELP);
    Ok(page)
}

/// A line that is not indented is a heading; what is below it keeps its line breaks.
fn push_sections(page: &mut String, text: &str) {
    for line in text.lines() {
        match line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            Some(heading) => {
                page.push_str(&format!(".SH {}\n.nf\n", heading.to_uppercase()));
            }
            // The text has no line that begins with a dot, which would be taken for a request.
            None => {
                page.push_str(
                    &line
                        .replace('\\', "\\e")
                        .replace('-', "\\-")
                        .replace('\'', "\\(aq"),
                );
                page.push('\n');
            }
        }
    }
    page.push_str(".fi\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_variable_and_section_is_on_the_page() {
        let page = page().unwrap().replace("\\-", "-");
        for text in [
            "--key",
            "LOCK_KEY",
            "--check",
            "--prune",
            ".SH EXAMPLES",
            ".SH EXIT CODES",
            "DATABASE_URL ./report.sh",
            "\n  127   the command was not found\n",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
    }

    #[test]
    fn no_line_of_the_examples_is_taken_for_a_request() {
        assert!(
            AFTER_LONG_HELP
                .lines()
                .all(|line| !line.starts_with(['.', '\'']))
        );
    }
}
