// Package consolereceiver emits a log record for each error in what the workload printed. It tails the console
// segments that the launcher keeps in shared memory; internal/console finds the errors in them.
package consolereceiver
