package engines

// generic is any other program. It has a page only where its command line names a port.
type generic struct{}

func (generic) name() string { return Generic }

func (generic) command(string, []string) bool { return false }

func (generic) module(string) bool { return false }

func (generic) adjust(argv []string, _ arguments) []string { return argv }

func (generic) page(own arguments, _ variables) page {
	return page{host: loopback, port: own.port(0), path: metricsPath}
}
