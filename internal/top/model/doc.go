// Package model turns successive /signals documents into the numbers the live view shows.
//
// History keeps what the window needs of the last reads; View computes from it: rates are differences of cumulative
// totals between two reads, matched by metric name, type, tags and frame. Nothing is shown that was not measured: a
// Value that is not OK is printed as "-".
package model
