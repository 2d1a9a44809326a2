package engines

import (
	"path/filepath"
	"strings"
)

// command is the word of a command line that says what runs.
type command struct {
	// at is its index.
	at int
	// name is a program or script as typed, or a Python module.
	name   string
	module bool
}

// wrapper describes what stands between a program that starts another one and that other one's command line. An
// option that is not listed is taken as one without a value, or with its value glued to it: where that is wrong the
// value is taken for the command, and the run is generic.
type wrapper struct {
	// subcommands, when set, are the words of which one must follow (after options of the wrapper).
	subcommands [][]string
	// values is the number of words that follow an option as its values.
	values map[string]int
	// module lists the options that say that the command is a Python module.
	module map[string]int
	// refuse lists the options after which no command follows word by word.
	refuse map[string]int
	// operands is the number of words between the options and the command.
	operands int
	// assignments says that words of the form NAME=VALUE may precede the command.
	assignments bool
}

// options maps each of the blank-separated names to n.
func options(n int, names string) map[string]int {
	m := make(map[string]int)
	for name := range strings.FieldsSeq(names) {
		m[name] = n
	}
	return m
}

// The option tables, each from the manual of its program.
var wrappers = map[string]wrapper{
	"env": {
		values:      options(1, `-u --unset -C --chdir -a --argv0`),
		refuse:      options(1, `-S --split-string`),
		assignments: true,
	},
	"graphsignal-run": {values: options(1, `--metrics-port --listen-host --listen-port --output --cuda-graph-trace --rocm-kernel-trace`)},
	"nice":            {values: options(1, `-n --adjustment`)},
	"ionice":          {values: options(1, `-c --class -n --classdata`), refuse: options(1, `-p --pid -P --pgid -u --uid`)},
	"nohup":           {},
	"setsid":          {},
	"time":            {values: options(1, `-f --format -o --output`)},
	"stdbuf":          {values: options(1, `-i --input -o --output -e --error`)},
	"timeout":         {values: options(1, `-k --kill-after -s --signal`), operands: 1},
	"taskset":         {refuse: options(1, `-p --pid`), operands: 1},
	"chrt": {
		values:   options(1, `-T --sched-runtime -P --sched-period -D --sched-deadline`),
		refuse:   options(1, `-p --pid -m --max`),
		operands: 1,
	},
	"numactl": {
		values: options(1, `-i --interleave -w --weighted-interleave -p --preferred -P --preferred-many
			-m --membind -N --cpunodebind -C --physcpubind`),
		refuse: options(1, `-s --show -H --hardware`),
	},
	"sudo": {
		values: options(1, `-C --close-from -D --chdir -g --group -h --host -p --prompt -R --chroot -r --role -t --type
			-T --command-timeout -u --user`),
		refuse: options(1, `-e --edit -i --login -K --remove-timestamp -k --reset-timestamp -l --list -s --shell -U --other-user
			-V --version -v --validate`),
		assignments: true,
	},
	"gosu":    {operands: 1},
	"su-exec": {operands: 1},
	"ld-linux-x86-64.so.2": {values: options(1, `--library-path --inhibit-rpath --preload --argv0 --audit --glibc-hwcaps-prepend
		--glibc-hwcaps-mask`), refuse: options(1, `--list --verify --help --version --list-tunables --list-diagnostics`)},
	"tini":        tini,
	"tini-static": tini,
	"docker-init": tini,
	"dumb-init":   {values: options(1, `-r --rewrite`)},
	"conda":       condaRun,
	"mamba":       condaRun,
	"micromamba":  condaRun,
	"pipenv":      {subcommands: [][]string{{"run"}}, values: options(1, `--python --pypi-mirror`)},
	"poetry":      {subcommands: [][]string{{"run"}}, values: options(1, `-C --directory -P --project`)},
	"uv":          {subcommands: [][]string{{"run"}, {"tool", "run"}}, values: uvValues, module: options(1, `-m --module`)},
	"uvx":         {values: uvValues},
	"torchrun": {
		// -m is a flag here: the module is the first word after all options.
		module: options(1, `-m --module`),
		values: options(1, `--nnodes --nproc-per-node --nproc_per_node --rdzv-backend --rdzv_backend --rdzv-endpoint
			--rdzv_endpoint --rdzv-id --rdzv_id --rdzv-conf --rdzv_conf --max-restarts --max_restarts
			--monitor-interval --monitor_interval --start-method --start_method --event-log-handler
			--event_log_handler --role --log-dir --log_dir -r --redirects -t --tee --local-ranks-filter
			--local_ranks_filter --duplicate-stdout-filters --duplicate-stderr-filters --node-rank --node_rank
			--master-addr --master_addr --master-port --master_port --local-addr --local_addr --logs-specs
			--logs_specs --numa-binding --numa_binding --signals-to-handle`),
	},
	"mpirun":  {values: mpirunValues},
	"mpiexec": {values: mpirunValues},
	"srun": {
		values: options(1, `-A --account -b --begin -c --cpus-per-task -C --constraint -D --chdir -d --dependency
			-e --error -G --gpus -i --input -J --job-name -L --licenses -m --distribution -M --clusters -n --ntasks
			-N --nodes -o --output -p --partition -q --qos -r --relative -t --time -T --threads -w --nodelist
			-W --wait -x --exclude --acctg-freq --comment --container --container-image --container-mounts
			--container-name --container-workdir --container-env --cores-per-socket --cpu-bind --cpu-freq
			--cpus-per-gpu --deadline --delay-boot --epilog --export --extra-node-info --gpu-bind --gpu-freq
			--gpus-per-node --gpus-per-socket --gpus-per-task --gres --gres-flags --het-group --hint --jobid
			--mail-type --mail-user --mem --mem-bind --mem-per-cpu --mem-per-gpu --mincpus --mpi --network
			--ntasks-per-core --ntasks-per-gpu --ntasks-per-node --ntasks-per-socket --open-mode --power --priority
			--profile --prolog --propagate --reservation --signal --slurmd-debug --sockets-per-node --switches
			--task-epilog --task-prolog --thread-spec --threads-per-core --time-min --tmp --uid --wckey`),
		refuse: options(1, `--multi-prog`),
	},
}

var tini = wrapper{values: options(1, `-p -e`)}

// conda, mamba and micromamba differ in a few options, none of which means two things.
var condaRun = wrapper{
	subcommands: [][]string{{"run"}},
	values:      options(1, `-n --name -p --prefix --cwd -r --root-prefix --rc-file -a --attach -e --env`),
}

// Modules that start a script or another module, as the programs of those names do.
var wrapperModules = map[string]wrapper{
	"torch.distributed.run":    wrappers["torchrun"],
	"torch.distributed.launch": wrappers["torchrun"],
}

var uvValues = options(1, `--extra --no-extra --group --no-group --only-group --env-file --with --with-editable
	--with-requirements --package --index --default-index -i --index-url --extra-index-url -f --find-links
	-P --upgrade-package --resolution --prerelease --fork-strategy --exclude-newer --index-strategy
	--keyring-provider --allow-insecure-host --directory --project --config-file --cache-dir -p --python
	--python-platform --link-mode -C --config-setting --refresh-package --reinstall-package --no-build-package
	--no-binary-package --color --from -w -c --constraints -b --build-constraints --overrides`)

// Open MPI takes its long options with one dash or two; Hydra (MPICH, Intel MPI) with one.
var mpirunValues = func() map[string]int {
	m := make(map[string]int)
	for words, names := range map[int]string{
		1: `-n -np -c -x -H -host -hosts -hostfile -machinefile -f -N -npernode -ppn -perhost -map-by -bind-to
			-rank-by -wdir -wd -output-filename -prefix -timeout -tune -am -report-uri -genvlist -envlist -rankfile
			-rf -cpu-set -cpu-list -personality -launch-agent -runtime-options`,
		2: `-mca -gmca -omca -prtemca -pmixmca -genv -env`,
	} {
		for name := range strings.FieldsSeq(names) {
			m[name], m["-"+name] = words, words
		}
	}
	return m
}()

// unwrap returns the command that c, a wrapper or an interpreter, starts. It reports false when c is neither, when
// nothing follows, and when what follows is text for a shell or another program to interpret.
func unwrap(argv []string, c command) (command, bool) {
	if c.module {
		if w, ok := wrapperModules[c.name]; ok {
			return w.command(argv, c.at+1)
		}
		return command{}, false
	}
	base := filepath.Base(c.name)
	if w, ok := wrappers[base]; ok {
		return w.command(argv, c.at+1)
	}
	if isPython(base) || isPython(realName(c.name)) {
		return pythonCommand(argv, c.at+1)
	}
	return command{}, false
}

// command returns what the wrapper starts, whose own words begin at i.
func (w wrapper) command(argv []string, i int) (command, bool) {
	i, module, ok := w.skipOptions(argv, i)
	if ok && w.subcommands != nil {
		if i, ok = w.skipSubcommand(argv, i); ok {
			i, module, ok = w.skipOptions(argv, i)
		}
	}
	if i += w.operands; !ok || i >= len(argv) {
		return command{}, false
	}
	return command{at: i, name: argv[i], module: module}, true
}

// skipOptions returns the index of the first word from i on that is neither an option nor the value of one.
func (w wrapper) skipOptions(argv []string, i int) (next int, module, ok bool) {
	for ; i < len(argv); i++ {
		word := argv[i]
		if word == "--" {
			return i + 1, module, true
		}
		if !strings.HasPrefix(word, "-") {
			if w.assignments && isAssignment(word) {
				continue
			}
			break
		}
		if name, _, _ := strings.Cut(word, "="); w.refuse[name] > 0 {
			return i, false, false
		}
		module = module || w.module[word] > 0
		i += w.values[word]
	}
	return i, module, true
}

func (w wrapper) skipSubcommand(argv []string, i int) (next int, ok bool) {
	for _, words := range w.subcommands {
		if n := len(words); i+n <= len(argv) && strings.Join(argv[i:i+n], " ") == strings.Join(words, " ") {
			return i + n, true
		}
	}
	return i, false
}

func isPython(base string) bool { return strings.HasPrefix(base, "python") }

// pythonCommand returns the module or script that a Python interpreter runs, whose options begin at i.
func pythonCommand(argv []string, i int) (command, bool) {
	for ; i < len(argv); i++ {
		word := argv[i]
		switch {
		case word == "--check-hash-based-pycs":
			i++
			continue
		case word == "-" || strings.HasPrefix(word, "--"):
			return command{}, false // a program on standard input, --version and the like
		case !strings.HasPrefix(word, "-"):
			return command{at: i, name: word}, true
		}
		// Options of one letter, several in a word. Those below take the rest of the word as value, or the next word.
	letters:
		for n := 1; n < len(word); n++ {
			rest := word[n+1:]
			switch word[n] {
			case 'm':
				if rest != "" {
					return command{at: i, name: rest, module: true}, true
				}
				if i+1 < len(argv) {
					return command{at: i + 1, name: argv[i+1], module: true}, true
				}
				return command{}, false
			case 'c':
				return command{}, false
			case 'W', 'X':
				if rest == "" {
					i++
				}
				break letters
			}
		}
	}
	return command{}, false
}

func isAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && !strings.ContainsAny(name, "/-")
}
