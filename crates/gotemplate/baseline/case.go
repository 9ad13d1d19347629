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

// A File holds cases over the same data.
type File struct {
	Data  json.RawMessage `json:"data"`
	Cases []Case          `json:"cases"`
}

// record answers every case file in place. The data is decoded anew for each case, since templates change it.
func record(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var file File
		if err := decode(string(text), &file); err != nil {
			return err
		}
		for i, c := range file.Cases {
			if err := decode(string(file.Data), &c.Data); err != nil {
				return err
			}
			c = answer(c)
			c.Data = nil
			file.Cases[i] = c
		}
		var out strings.Builder
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := e.Encode(file); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
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
