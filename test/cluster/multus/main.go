// Plays multus 3.9, of which Debian has no package: it reads the pod, calls the lists of its networks with libcni, notes them as multus does, and
// writes the pod's `network-status`. DEL finds them by its note alone. Of annotations it reads the short form; it updates nothing at DEL, so it is
// the faster of the two.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

type config struct {
	CNIVersion    string                 `json:"cniVersion"`
	Kubeconfig    string                 `json:"kubeconfig"`
	Delegates     []json.RawMessage      `json:"delegates"`
	RuntimeConfig map[string]interface{} `json:"runtimeConfig"`
}

// What multus keeps of a network, so that its DEL, or that of another program, finds it.
type network struct {
	Conf     struct{}
	ConfList json.RawMessage
	Name     string
	IfName   string `json:"ifnameRequest"`
	FilterV4 bool   `json:"IsFilterV4Gateway"`
	FilterV6 bool   `json:"IsFilterV6Gateway"`
	Bytes    []byte
}

const notes = "/var/lib/cni/multus"

func main() {
	if err := run(os.Getenv("CNI_COMMAND"), os.Getenv("CNI_CONTAINERID")); err != nil {
		types.NewError(types.ErrInternal, "Cannot play multus", err.Error()).Print()
		os.Exit(1)
	}
}

func run(verb, id string) error {
	if verb == "VERSION" {
		fmt.Println(`{"cniVersion":"1.0.0","supportedVersions":["0.3.1","0.4.0","1.0.0"]}`)
		return nil
	}
	var conf config
	if err := json.NewDecoder(os.Stdin).Decode(&conf); err != nil {
		return err
	}
	note := filepath.Join(notes, id)
	switch verb {
	case "ADD":
		return add(conf, note)
	case "DEL":
		return del(conf, note)
	}
	return nil
}

func add(conf config, note string) error {
	api, err := connect(conf.Kubeconfig)
	if err != nil {
		return err
	}
	args := argsOf()
	pod := fmt.Sprintf("api/v1/namespaces/%s/pods/%s", args["K8S_POD_NAMESPACE"], args["K8S_POD_NAME"])
	networks, err := networksOf(api, conf, pod, args["K8S_POD_NAMESPACE"])
	if err != nil {
		return err
	}
	text, err := json.Marshal(networks)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(notes, 0700); err != nil {
		return err
	}
	if err := os.WriteFile(note, text, 0600); err != nil {
		return err
	}
	var first types.Result
	status := []interface{}{}
	for i, one := range networks {
		list, err := libcni.ConfListFromBytes(one.Bytes)
		if err != nil {
			return err
		}
		result, err := cni().AddNetworkList(context.Background(), list, runtimeOf(conf, one.IfName))
		if err != nil {
			return err
		}
		full, err := current.NewResultFromResult(result)
		if err != nil {
			return err
		}
		ips := []string{}
		for _, one := range full.IPs {
			ips = append(ips, one.Address.IP.String())
		}
		status = append(status, map[string]interface{}{"name": one.Name, "interface": one.IfName, "ips": ips, "default": i == 0})
		if i == 0 {
			first = result
		}
	}
	told, err := json.Marshal(status)
	if err != nil {
		return err
	}
	annotations := map[string]string{"k8s.v1.cni.cncf.io/network-status": string(told)}
	body, err := json.Marshal(map[string]interface{}{"metadata": map[string]interface{}{"annotations": annotations}})
	if err != nil {
		return err
	}
	if _, err = api.ask("PATCH", pod+"/status", body); err != nil {
		return err
	}
	return types.PrintResult(first, conf.CNIVersion)
}

// The default network, and those that the pod names.
func networksOf(api *server, conf config, pod, namespace string) ([]network, error) {
	text, err := api.ask("GET", pod, nil)
	if err != nil {
		return nil, err
	}
	var known struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, err
	}
	list, err := libcni.ConfListFromBytes(conf.Delegates[0])
	if err != nil {
		return nil, err
	}
	all := []network{{ConfList: conf.Delegates[0], Name: list.Name, IfName: os.Getenv("CNI_IFNAME"), Bytes: conf.Delegates[0]}}
	for i, name := range strings.Split(known.Metadata.Annotations["k8s.v1.cni.cncf.io/networks"], ",") {
		if name == "" {
			continue
		}
		at := "apis/k8s.cni.cncf.io/v1/namespaces/" + namespace + "/network-attachment-definitions/" + name
		text, err := api.ask("GET", at, nil)
		if err != nil {
			return nil, err
		}
		var object struct{ Spec struct{ Config string } }
		if err := json.Unmarshal(text, &object); err != nil {
			return nil, err
		}
		config := []byte(object.Spec.Config)
		all = append(all, network{ConfList: config, Name: namespace + "/" + name, IfName: fmt.Sprintf("net%d", i+1), Bytes: config})
	}
	return all, nil
}

func del(conf config, note string) error {
	text, err := os.ReadFile(note)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	// Whatever comes of it.
	defer os.Remove(note)
	var networks []network
	if err := json.Unmarshal(text, &networks); err != nil {
		return err
	}
	failures := []string{}
	for i := len(networks) - 1; i >= 0; i-- {
		list, err := libcni.ConfListFromBytes(networks[i].Bytes)
		if err == nil {
			err = cni().DelNetworkList(context.Background(), list, runtimeOf(conf, networks[i].IfName))
		}
		if err != nil {
			failures = append(failures, err.Error())
		}
	}
	if len(failures) > 0 {
		return fmt.Errorf("errors: %s", strings.Join(failures, " / "))
	}
	return nil
}

func cni() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), notes, nil)
}

func runtimeOf(conf config, ifname string) *libcni.RuntimeConf {
	args := [][2]string{}
	for name, value := range argsOf() {
		args = append(args, [2]string{name, value})
	}
	return &libcni.RuntimeConf{ContainerID: os.Getenv("CNI_CONTAINERID"), NetNS: os.Getenv("CNI_NETNS"), IfName: ifname,
		Args: args, CapabilityArgs: conf.RuntimeConfig}
}

func argsOf() map[string]string {
	args := map[string]string{}
	for _, pair := range strings.Split(os.Getenv("CNI_ARGS"), ";") {
		if name, value, isPair := strings.Cut(pair, "="); isPair {
			args[name] = value
		}
	}
	return args
}

type server struct {
	url, token string
	client     http.Client
}

// By a kubeconfig that is JSON, before which lines of comment may stand.
func connect(file string) (*server, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for bytes.HasPrefix(text, []byte("#")) {
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	var known struct {
		Clusters []struct {
			Cluster struct {
				Server string
				File   string `json:"certificate-authority"`
				Data   []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Token    string
				Provider struct{ Config struct{ TokenFile string } } `json:"auth-provider"`
			}
		}
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, err
	}
	cluster, user := known.Clusters[0].Cluster, known.Users[0].User
	if cluster.File != "" {
		if cluster.Data, err = os.ReadFile(cluster.File); err != nil {
			return nil, err
		}
	}
	if user.Token == "" {
		token, err := os.ReadFile(user.Provider.Config.TokenFile)
		if err != nil {
			return nil, err
		}
		user.Token = strings.TrimSpace(string(token))
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cluster.Data)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	return &server{cluster.Server, user.Token, http.Client{Transport: transport}}, nil
}

func (api *server) ask(method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(method, api.url+"/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+api.token)
	request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	response, err := api.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	return text, err
}
