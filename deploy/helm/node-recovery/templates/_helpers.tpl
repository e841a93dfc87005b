{{- define "node-recovery.labels" -}}
app.kubernetes.io/name: node-recovery
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What one's own labels add to those of a pod. */}}
{{- define "node-recovery.podLabels" -}}
{{- with merge (dict) (.Values.podLabels | default dict) (.Values.labels | default dict) }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "node-recovery.image" -}}
{{- $image := .Values.image }}
{{- $tag := $image.tag | default ($image.digest | empty | ternary .Chart.AppVersion "") }}
{{- $image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Values of an earlier release of the chart, reused, lack what this one has added. Helm takes away what is null: the two cannot be told apart. */}}
{{- define "node-recovery.checkReused" -}}
{{- range tuple "mode" "fleet" "rbac" "crds" "monitoring" }}
{{- if not (get $.Values .) }}
{{- fail (printf "%s: missing or null. If your values say null, leave it out. If they are reused from an earlier version of the chart, they lack it. Use --reset-then-reuse-values instead of --reuse-values" .) }}
{{- end }}
{{- end }}
{{- range tuple "settings" "serviceAccount" "options" "npd" "sidecar" "concluder" "networkPolicy" }}
{{- if not (kindIs "map" (get $.Values .)) }}
{{- fail (printf "%s: null, expected a mapping. Leave it out for the chart's own values" .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "node-recovery.mode" -}}
{{- include "node-recovery.checkReused" . }}
{{- .Values.mode }}
{{- end }}

{{/* Whether the one switch is on: "true", or nothing. */}}
{{- define "node-recovery.on" -}}
{{- if eq (toString .Values.settings.ENABLE_RECOVERY) "true" }}true{{ end }}
{{- end }}

{{/* Which rights: `recover`, or those of `observe`. */}}
{{- define "node-recovery.rights" -}}
{{- include "node-recovery.checkReused" . }}
{{- $mode := .Values.rbac.mode }}
{{- if ne $mode "auto" }}{{ $mode }}{{ else }}{{ include "node-recovery.on" . | eq "true" | ternary "recover" "observe" }}{{ end }}
{{- end }}

{{/* The namespaces of the program's pods, between commas: of the agents and the concluder, or of the controller. */}}
{{- define "node-recovery.namespaces" -}}
{{- if eq (include "node-recovery.mode" .) "fleet" }}{{ .Values.fleet.namespace }}
{{- else if .Values.concluder.create }}{{ .Release.Namespace }},{{ .Values.concluder.namespace }}
{{- else }}{{ .Release.Namespace }}
{{- end }}
{{- end }}

{{/* The policy file. A controller always has one: the built-in policy goes by what is read on the nodes. */}}
{{- define "node-recovery.policy" -}}
{{- if .Values.policy }}{{ .Values.policy }}
{{- else if eq (include "node-recovery.mode" .) "fleet" }}
{{- .Files.Get (printf "files/fleet-%spolicy.yaml" (eq (toString .Values.settings.PROVIDER) "baremetal" | ternary "baremetal-" "")) }}
{{- end }}
{{- end }}

{{/* A pod that reads a ConfigMap once, at its start, is started again when the map changes; its identity too. */}}
{{- define "node-recovery.annotations" -}}
checksum/settings: {{ print (include (print $.Template.BasePath "/settings.yaml") .) ((.Values.azure).clientId | default "") (.Values.serviceAccount.annotations | default "" | toJson) | sha256sum }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The settings, those of Azure among them. */}}
{{- define "node-recovery.settings" -}}
{{- $settings := deepCopy .Values.settings }}
{{- $azure := dict }}
{{- with .Values.azure }}
{{- $azure = dict "CLUSTER_ID" .clusterId "REGION" .region "ALLOW" (join "," .allow) "AUTOSCALER" (ternary "true" "" .autoscaler) }}
{{- end }}
{{- range $name, $value := $azure }}
{{- if hasKey $settings (print "AZURE_" $name) }}
{{- fail (printf "settings.AZURE_%s: set azure.%s instead" $name ($name | lower | camelcase | untitle)) }}
{{- end }}
{{- if $value }}
{{- $_ := set $settings (print "AZURE_" $name) $value }}
{{- end }}
{{- end }}
{{- if (.Values.webhook).secretName }}
{{- $_ := set $settings "WEBHOOK_URL_FILE" "/var/run/secrets/node-recovery-webhook/url" }}
{{- $_ := set $settings "WEBHOOK_FORMAT" .Values.webhook.format }}
{{- end }}
{{- range $name, $value := $settings }}
{{- /* A number of a values file is a float, which toString writes as 1.23e+11. */}}
{{ $name }}: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end }}

{{/* Seconds in which a call to the cloud that was begun has surely ended, and its outcome is written. */}}
{{- define "node-recovery.grace" -}}
{{- $azure := .Values.azure | default dict }}
{{- if or $azure.clusterId $azure.clientId (eq (toString .Values.settings.PROVIDER) "azure") (include "node-recovery.bmcs" .) }}60{{ else if include "node-recovery.metal3" . }}45{{ else }}30{{ end }}
{{- end }}

{{/* Whether the controller asks BMCs. */}}
{{- define "node-recovery.bmcs" -}}
{{- if and (eq (include "node-recovery.mode" .) "fleet") (eq (toString .Values.settings.BAREMETAL_POWER) "redfish") }}true{{ end }}
{{- end }}

{{/* Whether the controller asks Metal3. */}}
{{- define "node-recovery.metal3" -}}
{{- if and (eq (include "node-recovery.mode" .) "fleet") (eq (toString .Values.settings.BAREMETAL_POWER) "metal3") }}true{{ end }}
{{- end }}

{{/* Only a pod with this label gets a token for Azure. */}}
{{- define "node-recovery.identityLabel" -}}
azure.workload.identity/use: "true"
{{- end }}

{{/* What the containers of a sidecar, of the concluder and of the controller share. */}}
{{- define "node-recovery.container" -}}
image: {{ include "node-recovery.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - configMapRef: {name: {{ .Release.Name | quote }}}
ports:
  - {name: metrics, containerPort: 9108}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 15
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  timeoutSeconds: 5
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- if or (include "node-recovery.policy" .) (.Values.webhook).secretName }}
volumeMounts:
  {{- if include "node-recovery.policy" . }}
  - {name: policy, mountPath: /etc/node-recovery, readOnly: true}
  {{- end }}
  {{- if (.Values.webhook).secretName }}
  - {name: webhook, mountPath: /var/run/secrets/node-recovery-webhook, readOnly: true}
  {{- end }}
  {{- if and (eq (include "node-recovery.mode" .) "fleet") .Values.fleet.secret }}
  - {name: secret, mountPath: /var/run/secrets/node-recovery, readOnly: true}
  {{- end }}
  {{- if include "node-recovery.bmcs" . }}
  # Beside the policy, not below it: nothing is mounted into a ConfigMap.
  {{- with .Values.fleet.bmcInventory }}
  - {name: inventory, mountPath: /etc/node-recovery-bmc/inventory, readOnly: true}
  {{- end }}
  {{- range $i, $name := .Values.fleet.bmcCredentials }}
  - {name: bmc-{{ $i }}, mountPath: {{ printf "/etc/node-recovery-bmc/credentials/%s" $name | quote }}, readOnly: true}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Whether node-problem-detector, in the agent's pod, writes nothing to the cluster and so gets no token. */}}
{{- define "node-recovery.tokenless" -}}
{{- if eq (toString .Values.npd.conditions) "false" }}true{{ end }}
{{- end }}

{{/* node-problem-detector's account, the same in both modes; empty where it is not this chart's, or has no token. */}}
{{- define "node-recovery.detectorAccount" -}}
{{- if and .Values.npd.create (not .Values.npd.onNode) (not (include "node-recovery.tokenless" .)) -}}
{{ .Release.Name }}-npd
{{- end }}
{{- end }}

{{/* The same where the detector is in the agent's pod, so that the agent asks for its tokens. */}}
{{- define "node-recovery.npdAccount" -}}
{{- if eq (include "node-recovery.mode" .) "sidecar" }}{{ include "node-recovery.detectorAccount" . }}{{ end }}
{{- end }}

{{/* Where a client in a container looks for its account. */}}
{{- define "node-recovery.tokenPath" -}}
/var/run/secrets/kubernetes.io/serviceaccount
{{- end }}

{{/* The mounts by which the agent has the pod's token for itself, and gives node-problem-detector its own. */}}
{{- define "node-recovery.tokenMounts" -}}
{{- $npd := include "node-recovery.npdAccount" . }}
{{- if or $npd (include "node-recovery.tokenless" .) }}
- {name: api-token, mountPath: {{ include "node-recovery.tokenPath" . }}, readOnly: true}
{{- end }}
{{- if $npd }}
- {name: npd-token, mountPath: /run/node-problem-detector}
{{- end }}
{{- end }}

{{/* It writes node-problem-detector's first token: without one that ends at once. The agent renews it. */}}
{{- define "node-recovery.npdToken" -}}
name: npd-token
{{- $container := include "node-recovery.container" . | fromYaml }}
{{ pick $container "image" "imagePullPolicy" "securityContext" | toYaml }}
args: [npd-token]
env:
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  - name: NPD_ACCOUNT
    value: {{ include "node-recovery.npdAccount" . }}
  - name: NPD_TOKEN_DIR
    value: /run/node-problem-detector
resources:
  {{- toYaml .Values.sidecar.resources | nindent 2 }}
volumeMounts:
  {{- include "node-recovery.tokenMounts" . | nindent 2 }}
{{- end }}

{{/* The sidecar, in a DaemonSet made here or in the patch for one that is already there. */}}
{{- define "node-recovery.sidecar" -}}
{{- $container := include "node-recovery.container" . }}
{{- with include "node-recovery.tokenMounts" . | fromYamlArray }}
{{- $mounts := concat ((fromYaml $container).volumeMounts | default list) . }}
{{- $container = set (fromYaml $container) "volumeMounts" $mounts | toYaml }}
{{- end -}}
name: node-recovery
{{ $container }}
env:
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  {{- with include "node-recovery.npdAccount" . }}
  - name: NPD_ACCOUNT
    value: {{ . }}
  - name: NPD_TOKEN_DIR
    value: /run/node-problem-detector
  {{- end }}
  {{- if and .Values.npd.onNode (not (hasKey .Values.settings "NPD_METRICS_URL")) }}
  - name: HOST_IP
    valueFrom: {fieldRef: {fieldPath: status.hostIP}}
  - name: NPD_METRICS_URL
    value: http://$(HOST_IP):20257/metrics
  {{- end }}
  {{- with .Values.sidecar.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .Values.sidecar.resources | nindent 2 }}
{{- end }}

{{- define "node-recovery.webhookVolume" -}}
name: webhook
secret: {secretName: {{ .Values.webhook.secretName | quote }}, optional: true}
{{- end }}

{{- define "node-recovery.policyVolume" -}}
name: policy
configMap: {name: {{ .Release.Name }}-policy}
{{- end }}

{{/* node-problem-detector's files, of the two kinds of monitors, and its flags for them. */}}
{{- define "node-recovery.logMonitors" -}}
{{- $files := dict }}
{{- if .Values.npd.neuron }}
{{- $_ := set $files "neuron-monitor.json" (.Files.Get "files/neuron-monitor.json") }}
{{- end }}
{{- merge (deepCopy .Values.npd.logMonitors) $files | toYaml }}
{{- end }}

{{- define "node-recovery.npdFlags" -}}
{{- $logs := include "node-recovery.logMonitors" . | fromYaml | keys | sortAlpha }}
{{- $plugins := .Values.npd.pluginMonitors | keys | sortAlpha }}
{{- if not (or $logs $plugins .Values.npd.gpu) }}
{{- fail "npd: node-problem-detector has nothing to watch. Set npd.neuron, npd.gpu, npd.logMonitors or npd.pluginMonitors" }}
{{- end }}
{{- with $logs }}
- --config.system-log-monitor=/config/{{ join ",/config/" . }}
{{- end }}
{{- with $plugins }}
- --config.custom-plugin-monitor=/config/{{ join ",/config/" . }}
{{- end }}
{{- end }}

{{/* Who the pods of an account are in the cloud: the agents, and the concluder that sees what became of their calls; or the controller. */}}
{{- define "node-recovery.accountAnnotations" -}}
{{- $annotations := deepCopy (.Values.serviceAccount.annotations | default dict) }}
{{- with (.Values.azure).clientId }}
{{- $_ := set $annotations "azure.workload.identity/client-id" . }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Off the nodes that it judges: on those that lack one of the things that the agents' nodes have. */}}
{{- define "node-recovery.concludersPlace" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- with .Values.npd.instanceTypes }}
      - matchExpressions:
          - key: node.kubernetes.io/instance-type
            operator: NotIn
            values:
              {{- toYaml . | nindent 14 }}
      {{- end }}
      {{- range $key, $value := .Values.npd.nodeSelector }}
      - matchExpressions:
          - {key: {{ $key }}, operator: NotIn, values: [{{ $value | quote }}]}
      {{- end }}
      {{- if not (or .Values.npd.instanceTypes .Values.npd.nodeSelector) }}
      # Every node is judged: these are at least nobody's who runs pods.
      - matchExpressions:
          - {key: node-role.kubernetes.io/control-plane, operator: Exists}
      - matchExpressions:
          - {key: node-role.kubernetes.io/infra, operator: Exists}
      {{- end }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      preference:
        matchExpressions:
          - {key: node-role.kubernetes.io/control-plane, operator: Exists}
    - weight: 50
      preference:
        matchExpressions:
          - {key: node-role.kubernetes.io/infra, operator: Exists}
{{- end }}

{{/* Off the nodes that are labelled as having accelerators, and off those that the detector runs on. */}}
{{- define "node-recovery.controllersPlace" -}}
{{- $terms := list }}
{{- if .Values.npd.create }}
{{- with .Values.npd.instanceTypes }}
{{- $terms = append $terms (dict "key" "node.kubernetes.io/instance-type" "operator" "NotIn" "values" .) }}
{{- end }}
{{- range $key, $value := .Values.npd.nodeSelector }}
{{- $terms = append $terms (dict "key" $key "operator" "NotIn" "values" (list $value)) }}
{{- end }}
{{- end }}
nodeAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      preference:
        matchExpressions:
          - {key: node-role.kubernetes.io/control-plane, operator: Exists}
    - weight: 50
      preference:
        matchExpressions:
          - {key: node-role.kubernetes.io/infra, operator: Exists}
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- range $terms | default (list nil) }}
      - matchExpressions:
          - {key: nvidia.com/gpu.present, operator: DoesNotExist}
          - {key: aws.amazon.com/neuron.present, operator: DoesNotExist}
          {{- with . }}
          - {{ toYaml . | nindent 12 | trim }}
          {{- end }}
      {{- end }}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            app: {{ .Release.Name }}-fleet
{{- end }}

{{/* The flags for the GPU pack: those of deploy/npd-gpu/pack/patch.yaml. */}}
{{- define "node-recovery.gpuFlags" -}}
{{- range (.Files.Get "files/gpu-pack-patch.yaml" | fromYamlArray) }}
{{- if eq .path "/spec/template/spec/containers/0/command/-" }}
- {{ .value }}
{{- end }}
{{- end }}
{{- end }}
