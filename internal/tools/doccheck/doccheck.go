// Package doccheck reads the project's Markdown pages for their links and their command blocks, so that tests can follow
// the one and execute the other.
//
// A fenced block with the info string `sh` may have a second word that says how it is checked:
//
//	run       it is executed in an empty directory in which bin, lib, include, examples and python are the project's
//	live      the same, while the demo engine runs under graphsignal-run
//	checkout  it is typed in a checkout: the targets of its make commands must exist
//	gpu, engine, remote, install
//	          it needs a GPU, an inference engine, another host, or changes the machine: only its syntax is checked
package doccheck

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// Block is a fenced block of a page.
type Block struct {
	// Page is the file, Line the number of the opening fence, from 1.
	Page string
	Line int
	// Language and Mark are the first two words of the info string, empty where missing.
	Language, Mark string
	Text           string
}

// Marks are the words that a block of the language sh may be marked with.
var Marks = map[string]bool{"run": true, "live": true, "checkout": true, "gpu": true, "engine": true, "remote": true, "install": true}

// Page is a Markdown file.
type Page struct {
	Path   string
	Blocks []Block
	// Links are the targets of links and pictures outside of code, in their order.
	Links []Link
	// Anchors are the fragments that GitHub gives the headings.
	Anchors map[string]bool
}

// Link is a link of a page.
type Link struct {
	Line   int
	Target string
}

var (
	fence   = regexp.MustCompile("^ {0,3}(```+|~~~+)[ \t]*([^`]*)$")
	heading = regexp.MustCompile(`^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$`)
	link    = regexp.MustCompile(`\]\(\s*<?([^)\s>]*)>?(?:\s+"[^"]*")?\s*\)`)
	code    = regexp.MustCompile("``[^`].*?``|`[^`]*`")
	markup  = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// Read reads a page. An open fence at its end is an error.
func Read(path string) (*Page, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &Page{Path: path, Anchors: make(map[string]bool)}
	var open *Block
	var ending string
	for i, line := range strings.Split(string(data), "\n") {
		if m := fence.FindStringSubmatch(line); m != nil && (open == nil || strings.HasPrefix(m[1], ending) && strings.TrimSpace(m[2]) == "") {
			if open != nil {
				p.Blocks = append(p.Blocks, *open)
				open = nil
				continue
			}
			words := append(strings.Fields(m[2]), "", "")
			open, ending = &Block{Page: path, Line: i + 1, Language: words[0], Mark: words[1]}, m[1]
			continue
		}
		if open != nil {
			open.Text += line + "\n"
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			p.addAnchor(m[1])
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
			p.Links = append(p.Links, Link{Line: i + 1, Target: m[1]})
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the block has no end", path, open.Line)
	}
	return p, nil
}

// addAnchor adds the fragment of a heading, with a number where it is there already.
func (p *Page) addAnchor(text string) {
	text = markup.ReplaceAllString(text, "$1")
	var out strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			out.WriteRune(r)
		case r == ' ':
			out.WriteByte('-')
		}
	}
	anchor := out.String()
	for n := 1; p.Anchors[anchor]; n++ {
		anchor = fmt.Sprintf("%s-%d", out.String(), n)
	}
	p.Anchors[anchor] = true
}

// BrokenLinks follows the links of a page to files and headings below root, and returns one line for each that leads
// nowhere. Links to other hosts are not followed.
func (p *Page) BrokenLinks(root string) (broken []string) {
	for _, l := range p.Links {
		if problem := p.follow(root, l.Target); problem != "" {
			broken = append(broken, fmt.Sprintf("%s:%d: %s: %s", p.Path, l.Line, l.Target, problem))
		}
	}
	return broken
}

func (p *Page) follow(root, target string) (problem string) {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	file, fragment, _ := strings.Cut(target, "#")
	page := p
	if file != "" {
		path := filepath.Join(filepath.Dir(p.Path), filepath.FromSlash(file))
		if inside, err := filepath.Rel(root, path); err != nil || strings.HasPrefix(inside, "..") {
			return "leads out of the project"
		}
		if _, err := os.Stat(path); err != nil {
			return "there is no such file"
		}
		if fragment == "" {
			return ""
		}
		other, err := Read(path)
		if err != nil {
			return err.Error()
		}
		page = other
	}
	if fragment != "" && !page.Anchors[fragment] {
		return "there is no such heading"
	}
	return ""
}
