// Package enginereceiver scrapes the Prometheus pages of inference engines and emits their series: counters without
// "_total", gauges, and histograms with their exact "le" bounds.
//
// Beside the workload extension a page is read only if the listening socket belongs to the workload: the default port of
// an engine may well be another server's. No port but the configured one is ever contacted.
package enginereceiver
