package series

import (
	"cmp"
	"slices"
)

// Frame is one row of a profile: the cumulative value of a name and the number of recordings behind it.
type Frame struct {
	Name    string
	Value   uint64
	Samples uint64
}

// MaxFrames is the most frames a profile keeps.
const MaxFrames = 250

// LargestFrames returns at most MaxFrames frames, those with the most value (of equal ones the earlier), in
// their given order.
func LargestFrames(frames []Frame) []Frame {
	if len(frames) <= MaxFrames {
		return frames
	}
	order := make([]int, len(frames))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(frames[b].Value, frames[a].Value) })
	order = order[:MaxFrames]
	slices.Sort(order)
	kept := make([]Frame, 0, MaxFrames)
	for _, i := range order {
		kept = append(kept, frames[i])
	}
	return kept
}
