// Package graphsignalexporter uploads signals to the Graphsignal platform once a second, as growth that the server
// adds up. What is sent, and what happens when the server cannot be reached, is internal/upload's.
package graphsignalexporter
