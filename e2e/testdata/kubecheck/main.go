// Command kubecheck decodes Kubernetes manifests strictly into the API's own types: an unknown field, kind or type of
// value is an error. It is a module of its own so that these types stay out of ours.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	var errs []error
	for _, file := range os.Args[1:] {
		if err := check(file); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(file string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for n := 0; ; n++ {
		document, err := documents.Read()
		if err == io.EOF {
			if n == 0 {
				return errors.New("no object")
			}
			return nil
		}
		if err != nil {
			return err
		}
		if _, _, err := decoder.Decode(document, nil, nil); err != nil {
			return err
		}
	}
}
