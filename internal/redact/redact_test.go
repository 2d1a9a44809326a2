package redact

import (
	"slices"
	"strings"
	"testing"
)

func TestArgs(t *testing.T) {
	cases := []struct{ name, in, want string }{ // arguments are separated by |
		{"flag and value", "vllm|serve|m|--api-key|zz-1|--port|8000", "vllm|serve|m|--api-key|***|--port|8000"},
		{"flag with equals", "x|--admin-api-key=zz-2", "x|--admin-api-key=***"},
		{"empty value", "x|--api-key=|--token|", "x|--api-key=|--token|"},
		{"value with blanks", "x|--password|two words 4", "x|--password|***"},
		{"single dash", "x|-token|abc", "x|-token|***"},
		{"dangling flag", "x|--model|m1|--api-key", "x|--model|m1|--api-key"},
		{"missing value", "x|--api-key|--model|m1", "x|--api-key|--model|m1"},
		{"value with a dash", "x|--api-key|-zz9secret", "x|--api-key|***"},
		{"value with dashes", "x|--api-key|--zz9secret", "x|--api-key|***"},
		{"two missing values", "x|--api-key|--hf-token|zz", "x|--api-key|--hf-token|***"},
		{"java property", "java|-Ddb.password=zz|-jar|a.jar", "java|-Ddb.password=***|-jar|a.jar"},
		{"camel case", "x|--apiKey|zz|--hfToken=zz|--maxTokens|4", "x|--apiKey|***|--hfToken=***|--maxTokens|4"},
		{"numbered", "env|API_KEY_2=zz|OPENAI_API_KEY3=zz", "env|API_KEY_2=***|OPENAI_API_KEY3=***"},
		{"variables", "env|HF_TOKEN=zz|AWS_SECRET_ACCESS_KEY=zz|PGPASSWORD=zz|PWD=/home/u|A=1",
			"env|HF_TOKEN=***|AWS_SECRET_ACCESS_KEY=***|PGPASSWORD=***|PWD=/home/u|A=1"},
		{"variable as value", "docker|run|-e|HF_TOKEN=zz|img", "docker|run|-e|HF_TOKEN=***|img"},
		{"header", "curl|--header|Authorization: Bearer zz-5|-H|X-Api-Key: zz|-H|Accept: text/html",
			"curl|--header|Authorization: ***|-H|X-Api-Key: ***|-H|Accept: text/html"},
		{"bearer alone", "x|say bearer abcdefgh", "x|say bearer ***"},
		{"url", "x|--url|https://u:zz-6@host.example/x|git+https://zztoken@host/r.git",
			"x|--url|https://***@host.example/x|git+https://***@host/r.git"},
		{"url with at in password", "x|https://u:p@zz@host/", "x|https://***@host/"},
		{"url without credentials", "x|https://host/a@b|user@host:/path", "x|https://host/a@b|user@host:/path"},
		{"url query", "x|https://h/p?model=m&api_key=zz&n=1&sig=zz", "x|https://h/p?model=m&api_key=***&n=1&sig=***"},
		{"json", `x|--config|{"model": "m", "api_key": "zz", "port": 1, "hfToken":"z\"z"}`,
			`x|--config|{"model": "m", "api_key": "***", "port": 1, "hfToken":"***"}`},
		{"shell text", "sh|-c|exec env HF_TOKEN=zz vllm serve m --api-key zz --port 1; echo done",
			"sh|-c|exec env HF_TOKEN=*** vllm serve m --api-key *** --port 1; echo done"},
		{"variable with blanks", "env|DB_PASSWORD=two words|x", "env|DB_PASSWORD=***|x"},
		{"shell text quoted", "sh|-c|srv --api-key 'z z' m --password \"zz\"|x", "sh|-c|srv --api-key '***' m --password \"***\"|x"},
		{"process title", "vllm serve --password two words 444 --port 1", "vllm serve --password *** --port 1"},
		{"nested assignment", "x|--set=auth.token=zz", "x|--set=auth.token=***"},
		{"user and password", "x|--basic-auth|u:zz|--basic-auth=u:zz|--auth=none|--auth|basic", "x|--basic-auth|u:***|--basic-auth=u:***|--auth=none|--auth|basic"},
		{"token shapes", "x|hf_abcdefghijklmnopqrstuv|key is sk-abcdefghijklmnopqrst.", "x|***|key is ***."},
		{"harmless names", "x|--tokenizer|t1|--max-tokens|99|--eos-token|</s>|--ssl-keyfile|/k|--api-key-file|/f|--key|a|--sort-key|b|--two-pass|1|--max-num-batched-tokens=8192",
			"x|--tokenizer|t1|--max-tokens|99|--eos-token|</s>|--ssl-keyfile|/k|--api-key-file|/f|--key|a|--sort-key|b|--two-pass|1|--max-num-batched-tokens=8192"},
		{"empty", "", ""},
		{"invalid utf-8", "x|\xff\xfe--api-key|--api-key|\xff\xfe", "x|\xff\xfe--api-key|--api-key|***"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := strings.Split(c.in, "|")
			before := slices.Clone(in)
			got := strings.Join(Args(in), "|")
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if !slices.Equal(in, before) {
				t.Error("the input was changed")
			}
		})
	}
}

func TestCommandLineOfAnEngine(t *testing.T) {
	got := CommandLine([]string{"python3", "-c", "import time; time.sleep(6)", "--api-key", "zz-first-111",
		"--admin-api-key=zz-second-222", "--hf-token", "zz-third-333", "--password", "two words 444",
		"--header", "Authorization: Bearer zz-fifth-555", "--url", "https://u:zz-sixth-666@host.example/x",
		"--model", "m1", "--tokenizer", "t1", "--max-tokens", "99", "--api-key"})
	want := "python3 -c import time; time.sleep(6) --api-key *** --admin-api-key=*** --hf-token *** --password *** " +
		"--header Authorization: *** --url https://***@host.example/x --model m1 --tokenizer t1 --max-tokens 99 --api-key"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzArgs(f *testing.F) {
	f.Add("vllm\x00serve\x00--api-key")
	f.Add(`x` + "\x00" + `{"api_key":"a","b":'c'}` + "\x00https://a:b@c?token=d\x00-H\x00Cookie: a=b")
	f.Add("sh\x00-c\x00A_TOKEN=x y --password 'a b' ; z")
	f.Fuzz(func(t *testing.T, joined string) {
		const planted = "zzPLANTEDzz"
		argv := append(strings.Split(joined, "\x00"), "--api-key="+planted, "--hf-token", planted)
		got := Args(argv)
		if len(got) != len(argv) {
			t.Fatalf("%d arguments became %d", len(argv), len(got))
		}
		if strings.Contains(strings.Join(got[len(got)-3:], " "), planted) {
			t.Errorf("planted secret survives in %q", got)
		}
		CommandLine(argv)

		// Whatever stands before, in arguments of their own and in one text.
		for _, form := range []string{
			"HF_TOKEN=" + planted, "https://u:" + planted + "@h/", `{"api_key": "` + planted + `"}`, "Authorization: Bearer " + planted, "hf_" + planted + planted,
		} {
			got := Args(append(strings.Split(joined, "\x00"), "x", form))
			if last := got[len(got)-1]; strings.Contains(last, planted) {
				t.Errorf("planted secret survives in %q", last)
			}
		}
		text := strings.ReplaceAll(joined, "\x00", " ") + " --api-key " + planted
		if got := CommandLine([]string{"sh", "-c", text}); strings.Contains(got, planted) {
			t.Errorf("planted secret survives in %q", got)
		}
	})
}
