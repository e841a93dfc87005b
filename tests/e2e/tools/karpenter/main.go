// Karpenter with a cloud of the tests: its own controllers, unchanged, and its KWOK provider, whose machines are
// instances of a local EC2 (AWS_ENDPOINT_URL). So a Node has EC2's providerID, and an end in EC2's own words.
//
// "karpenter crds" prints the CRDs. REPAIR_AFTER: how long a condition has to last before node repair.
package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/apis"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

// Cloud is KWOK's provider with instances of EC2.
type Cloud struct {
	*kwok.CloudProvider
	kube  client.Client
	types []*cloudprovider.InstanceType
	mutex sync.Mutex
	known map[string]*v1.NodeClaim // by providerID
}

// named writes the instance into the Node that KWOK's provider makes, as the cloud's kubelet would.
type named struct {
	client.Client
	instance string
}

func (n named) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if node, ok := object.(*corev1.Node); ok {
		node.Spec.ProviderID = providerID(node.Labels[corev1.LabelTopologyZone], n.instance)
		node.Status.NodeInfo.BootID = "boot-of-" + n.instance
		node.Status.NodeInfo.SystemUUID = n.instance
	}
	return n.Client.Create(ctx, object, options...)
}

func providerID(zone, instance string) string {
	return "aws:///" + zone + "/" + instance
}

func instanceOf(providerID string) string {
	return providerID[strings.LastIndex(providerID, "/")+1:]
}

func (c *Cloud) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	instance, err := ask("RunInstances", "ImageId", "ami-12c6146b", "MinCount", "1", "MaxCount", "1")
	if err != nil {
		return nil, cloudprovider.NewInsufficientCapacityError(err)
	}
	kube := named{c.kube, instance.Instance}
	made, err := kwok.NewCloudProvider(ctx, kube, c.types).Create(ctx, claim)
	if err != nil {
		return nil, err
	}
	made.Status.ProviderID = providerID(made.Labels[corev1.LabelTopologyZone], instance.Instance)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.known[made.Status.ProviderID] = made
	return made, nil
}

func (c *Cloud) Get(_ context.Context, id string) (*v1.NodeClaim, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	found, known := c.known[id]
	said, err := ask("DescribeInstances", "InstanceId.1", instanceOf(id))
	if !known || err != nil || said.State == "terminated" {
		return nil, cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("%s is gone", id))
	}
	return found, nil
}

func (c *Cloud) List(ctx context.Context) ([]*v1.NodeClaim, error) {
	c.mutex.Lock()
	ids := make([]string, 0, len(c.known))
	for id := range c.known {
		ids = append(ids, id)
	}
	c.mutex.Unlock()
	var found []*v1.NodeClaim
	for _, id := range ids {
		if one, err := c.Get(ctx, id); err == nil {
			found = append(found, one)
		}
	}
	return found, nil
}

func (c *Cloud) Delete(ctx context.Context, claim *v1.NodeClaim) error {
	if _, err := c.Get(ctx, claim.Status.ProviderID); err != nil {
		return err
	}
	_, err := ask("TerminateInstances", "InstanceId.1", instanceOf(claim.Status.ProviderID))
	return err
}

func (c *Cloud) Reboot(ctx context.Context, claim *v1.NodeClaim, operation string) error {
	if _, err := ask("RebootInstances", "InstanceId.1", instanceOf(claim.Status.ProviderID)); err != nil {
		return err
	}
	return c.CloudProvider.Reboot(ctx, claim, operation) // another boot ID
}

// RepairPolicies are those of the AWS provider 1.15 for accelerators and for dead nodes, with a shorter patience.
func (c *Cloud) RepairPolicies() []cloudprovider.RepairPolicy {
	patience, err := time.ParseDuration(os.Getenv("REPAIR_AFTER"))
	if err != nil {
		patience = 10 * time.Minute
	}
	drain := patience / 2
	const accelerators = "AcceleratedHardwareReady"
	policy := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string,
		action cloudprovider.RepairAction) cloudprovider.RepairPolicy {
		return cloudprovider.RepairPolicy{ConditionType: kind, ConditionStatus: status, ReasonRegex: reason,
			TolerationDuration: patience, TerminationGracePeriod: &drain, Action: action}
	}
	return []cloudprovider.RepairPolicy{
		policy(corev1.NodeReady, corev1.ConditionFalse, ".*", cloudprovider.ReplaceNode),
		policy(corev1.NodeReady, corev1.ConditionUnknown, ".*", cloudprovider.ReplaceNode),
		policy(accelerators, corev1.ConditionFalse, ".*XID(48|63).*", cloudprovider.RebootNode),
		policy(accelerators, corev1.ConditionFalse, "", cloudprovider.ReplaceNode),
	}
}

type answer struct {
	Instance string
	State    string
}

// ask sends one request of EC2's query API.
func ask(action string, parameters ...string) (answer, error) {
	form := url.Values{"Action": {action}, "Version": {"2016-11-15"}}
	for i := 0; i < len(parameters); i += 2 {
		form.Set(parameters[i], parameters[i+1])
	}
	request, err := http.NewRequest("POST", os.Getenv("AWS_ENDPOINT_URL"), strings.NewReader(form.Encode()))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	scope := "20260101/" + os.Getenv("AWS_REGION") + "/ec2/aws4_request"
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=karpenter/"+scope+
		", SignedHeaders=host, Signature=0") // moto reads the region from it, and checks nothing
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("%s: %s %s %v", action, response.Status, text, err)
	}
	return read(text)
}

// read takes the one instance, and its state, from whichever answer it is.
func read(text []byte) (answer, error) {
	var found answer
	var path []string
	decoder := xml.NewDecoder(bytes.NewReader(text))
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			return found, nil
		} else if err != nil {
			return answer{}, err
		}
		switch part := token.(type) {
		case xml.StartElement:
			path = append(path, part.Name.Local)
		case xml.EndElement:
			path = path[:len(path)-1]
		case xml.CharData:
			where := strings.Join(path, "/")
			if strings.HasSuffix(where, "/instanceId") {
				found.Instance = string(part)
			} else if strings.HasSuffix(where, "/instanceState/name") || strings.HasSuffix(where, "/currentState/name") {
				found.State = string(part)
			}
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func printCRDs() {
	for _, crd := range append(apis.CRDs, kwokapis.CRDs...) {
		text, err := yaml.Marshal(crd)
		must(err)
		fmt.Printf("---\n%s", text)
	}
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "crds" {
		printCRDs()
		return
	}
	ctx, op := operator.NewOperator()
	types, err := kwok.ConstructInstanceTypes(ctx)
	must(err)
	cloud := &Cloud{
		CloudProvider: kwok.NewCloudProvider(ctx, op.GetClient(), types),
		kube:          op.GetClient(),
		types:         types,
		known:         map[string]*v1.NodeClaim{},
	}
	decorated := overlay.Decorate(cloud, op.GetClient(), op.InstanceTypeStore)
	matcher, err := health.NewRepairPolicyMatcher(ctx, decorated)
	must(err)
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated, state.WithRepairPolicyMatcher(matcher))
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, decorated, cloud, cluster,
		op.InstanceTypeStore, op.PredictionStore,
	)...).Start(ctx)
}
