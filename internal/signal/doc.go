// Package signal is the one place that knows how signals are carried in pdata: receivers build with it,
// exporters decode with it, and what comes out is exactly what went in.
//
//   - A gauge is a Gauge; a counter is a monotonic cumulative Sum; both keep integers as integers.
//   - A profile is two monotonic cumulative int Sums with attribute "frame": its own name and a name for the
//     recordings behind the value, tied by the metric metadata "graphsignal.profile". An empty profile carries
//     one point without "frame" and with the flag NoRecordedValue in each.
//   - A histogram is a cumulative Histogram. Metadata "graphsignal.bins=lower" says that the writer's bins were
//     inclusive integer lower edges; without it, bounds are inclusive upper bounds ("le"). No bins: no bounds.
//     No exact totals: no sum.
//   - Resources of /signals are entities on the pdata Resource; identifying attributes are its tags,
//     descriptive attributes its attributes. Every other resource attribute is a tag of every series.
//   - Errors are log records: severity, body, attribute "exception.stacktrace", and tags.
package signal
