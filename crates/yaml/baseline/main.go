// Command baseline asks the real Go libraries what they make of YAML texts.
//
//	go run . ../tests/cases      writes <case>.answers.json beside each <case>.yaml
//	go run . -                   answers a JSON array of base64 texts on stdin with a JSON array on stdout
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	sigs "sigs.k8s.io/yaml"
)

// Answers holds what each library says; a failed question has its error instead.
type Answers struct {
	V2           string `json:"v2"`
	V3           string `json:"v3"`
	ToJSON       string `json:"toJson"`
	ToJSONStrict string `json:"toJsonStrict"`
	ToYAML       string `json:"toYaml"`
	Format       string `json:"format"`
	Indented     string `json:"indented"`
	Kustomize    string `json:"kustomize"`
	Nodes        string `json:"nodes"`
}

func answer(text []byte) Answers {
	var answers Answers
	answers.V2 = guarded(func() (string, error) {
		var value interface{}
		err := yamlv2.Unmarshal(text, &value)
		return fmt.Sprintf("%#v", value), err
	})
	answers.V3 = guarded(func() (string, error) {
		var value interface{}
		err := yamlv3.Unmarshal(text, &value)
		return fmt.Sprintf("%#v", value), err
	})
	answers.ToJSON = guarded(func() (string, error) {
		out, err := sigs.YAMLToJSON(text)
		return string(out), err
	})
	answers.ToJSONStrict = guarded(func() (string, error) {
		out, err := sigs.YAMLToJSONStrict(text)
		return string(out), err
	})
	answers.ToYAML = guarded(func() (string, error) {
		out, err := sigs.YAMLToJSON(text)
		if err != nil {
			return "", err
		}
		out, err = sigs.JSONToYAML(out)
		return string(out), err
	})
	answers.Format = guarded(func() (string, error) {
		node, err := kyaml.Parse(string(text))
		if err != nil {
			return "", err
		}
		return node.String()
	})
	answers.Indented = guarded(func() (string, error) {
		var node yamlv3.Node
		if err := yamlv3.Unmarshal(text, &node); err != nil {
			return "", err
		}
		if node.IsZero() {
			return "", io.EOF
		}
		out, err := yamlv3.Marshal(&node)
		return string(out), err
	})
	answers.Kustomize = guarded(func() (string, error) {
		node, err := kyaml.Parse(string(text))
		if err != nil {
			return "", err
		}
		out, err := node.MarshalJSON()
		if err != nil {
			return "", err
		}
		out, err = sigs.JSONToYAML(out)
		return string(out), err
	})
	answers.Nodes = guarded(func() (string, error) {
		var node yamlv3.Node
		if err := yamlv3.Unmarshal(text, &node); err != nil {
			return "", err
		}
		var out strings.Builder
		dump(&out, &node, 0)
		return out.String(), nil
	})
	return answers
}

// guarded turns errors and panics into text.
func guarded(ask func() (string, error)) (result string) {
	defer func() {
		if problem := recover(); problem != nil {
			result = "panic"
		}
	}()
	out, err := ask()
	if err != nil {
		return "error: " + err.Error()
	}
	return out
}

var kinds = map[yamlv3.Kind]string{
	yamlv3.DocumentNode: "document", yamlv3.SequenceNode: "sequence", yamlv3.MappingNode: "mapping",
	yamlv3.ScalarNode: "scalar", yamlv3.AliasNode: "alias",
}

func dump(out *strings.Builder, node *yamlv3.Node, depth int) {
	fmt.Fprintf(out, "%s%s", strings.Repeat(" ", depth), kinds[node.Kind])
	if node.Kind != yamlv3.DocumentNode && node.Kind != yamlv3.AliasNode {
		fmt.Fprintf(out, " %s", node.ShortTag())
	}
	if node.Kind == yamlv3.ScalarNode || node.Kind == yamlv3.AliasNode {
		fmt.Fprintf(out, " %s", quote(node.Value))
	}
	fmt.Fprintf(out, " style=%d", node.Style)
	if node.Kind != yamlv3.DocumentNode {
		fmt.Fprintf(out, " at=%d:%d", node.Line, node.Column)
	}
	if node.Anchor != "" {
		fmt.Fprintf(out, " anchor=%s", node.Anchor)
	}
	for _, comment := range [][2]string{{"head", node.HeadComment}, {"line", node.LineComment}, {"foot", node.FootComment}} {
		if comment[1] != "" {
			fmt.Fprintf(out, " %s=%s", comment[0], quote(comment[1]))
		}
	}
	out.WriteString("\n")
	for _, child := range node.Content {
		dump(out, child, depth+1)
	}
}

func quote(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: baseline FOLDER | baseline -")
	}
	if args[0] == "-" {
		return answerStream()
	}
	return filepath.WalkDir(args[0], func(path string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out, err := encode(answer(text), " ")
		if err != nil {
			return err
		}
		return os.WriteFile(strings.TrimSuffix(path, ".yaml")+".answers.json", out, 0o644)
	})
}

func answerStream() error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var questions []string
	if err := json.Unmarshal(input, &questions); err != nil {
		return err
	}
	answers := make([]Answers, 0, len(questions))
	for _, question := range questions {
		text, err := base64.StdEncoding.DecodeString(question)
		if err != nil {
			return err
		}
		answers = append(answers, answer(text))
	}
	out, err := encode(answers, "")
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}

func encode(value interface{}, indent string) ([]byte, error) {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	err := encoder.Encode(value)
	return []byte(out.String()), err
}
