// Package version holds the version of this build.
package version

// Version is the release, set at build time by -ldflags "-X <this package>.Version=V".
var Version = "0.1.0"
