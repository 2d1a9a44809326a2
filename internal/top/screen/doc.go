// Package screen shows views: as an interactive terminal program, as a stream of plain pages where the terminal cannot do
// more, or once.
//
// All text that comes from the endpoint passes glyphs.clean before it reaches a line.
package screen
