package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

// A Case is one template with its data, and what Go makes of it.
type Case struct {
	Name string `json:"name,omitempty"`
	Tmpl string `json:"tmpl"`
	// Data is JSON; Mode says whether its whole numbers are "int" or "float".
	Data any    `json:"data,omitempty"`
	Mode string `json:"mode,omitempty"`
	// MissingKey is "", "zero" or "error".
	MissingKey string `json:"missingkey,omitempty"`
	Expected   string `json:"expected,omitempty"`
	Error      string `json:"error,omitempty"`
}

func answer(c Case) Case {
	time.Local = time.UTC
	funcs := sprig.TxtFuncMap()
	delete(funcs, "env")
	delete(funcs, "expandenv")
	c.Expected, c.Error = "", ""
	t := template.New("root").Funcs(funcs)
	if c.MissingKey != "" {
		t = t.Option("missingkey=" + c.MissingKey)
	}
	t, err := t.Parse(c.Tmpl)
	if err != nil {
		c.Error = err.Error()
		return c
	}
	var out strings.Builder
	if err := t.Execute(&out, convert(c.Data, c.Mode)); err != nil {
		c.Error = err.Error()
		return c
	}
	c.Expected = out.String()
	return c
}

// convert turns the numbers of a decoded JSON tree into what the mode asks for.
func convert(v any, mode string) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil && mode != "float" {
			return int(i)
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = convert(v[i], mode)
		}
	case map[string]any:
		for k := range v {
			v[k] = convert(v[k], mode)
		}
	}
	return v
}

func decode(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// record answers every case file (a JSON list of cases) in place.
func record(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var cases []Case
		if err := decode(string(text), &cases); err != nil {
			return err
		}
		for i := range cases {
			data := cases[i].Data
			raw, _ := json.Marshal(data)
			cases[i] = answer(cases[i])
			cases[i].Data = json.RawMessage(raw)
			if data == nil {
				cases[i].Data = nil
			}
		}
		var out strings.Builder
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(cases); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	w := bufio.NewWriter(out)
	defer w.Flush()
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for lines.Scan() {
		var c Case
		if err := decode(lines.Text(), &c); err != nil {
			return err
		}
		c = answer(c)
		c.Data = nil
		if err := e.Encode(c); err != nil {
			return err
		}
	}
	return lines.Err()
}
