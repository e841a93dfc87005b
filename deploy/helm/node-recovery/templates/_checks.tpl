{{/* An image that can be pulled. Its sentences are here, since a schema could only show a pattern. */}}
{{- define "node-recovery.checkImage" -}}
{{- $image := .Values.image }}
{{- if not $image.repository }}
{{- fail "image.repository: missing, and no public registry has the image. Build and push it (docs/image.md), then add --set image.repository=REGISTRY/node-recovery" }}
{{- end }}
{{- if regexMatch "[\\s@]|:[^/]*$|/$" $image.repository }}
{{- fail (printf "image.repository: %s: expected only a registry and a name, such as registry.example.com/node-recovery. Put a tag into image.tag, and a digest into image.digest" $image.repository) }}
{{- end }}
{{- if regexMatch "://|^REGISTRY/|/.*[A-Z]" $image.repository }}
{{- fail (printf "image.repository: %s: no kubelet can pull this. Expected a registry without https:// and a name in lower case, such as registry.example.com/node-recovery" $image.repository) }}
{{- end }}
{{- if and $image.tag (not (regexMatch "^[\\w][-.\\w]{0,127}(@sha256:[0-9a-f]{64})?$" $image.tag)) }}
{{- fail (printf "image.tag: %s: expected a tag, such as 0.1.0. Put a digest into image.digest" $image.tag) }}
{{- end }}
{{- if and $image.digest (not (regexMatch "^sha256:[0-9a-f]{64}$" $image.digest)) }}
{{- fail (printf "image.digest: %s: expected sha256: and 64 characters from 0-9 and a-f" $image.digest) }}
{{- end }}
{{- if and $image.digest (contains "@" $image.tag) }}
{{- fail "image.tag, image.digest: both contain a digest. Remove one of them" }}
{{- end }}
{{- end }}

{{/* CRDs that are there already: Helm takes over none that is not marked as this release's, and its own error does not say how. */}}
{{- define "node-recovery.checkCrds" -}}
{{- if .Values.crds.enabled }}
{{- $nobodys := list }}
{{- $others := list }}
{{- $owner := "" }}
{{- range $path, $_ := .Files.Glob "files/crds/*.yaml" }}
{{- $name := ($.Files.Get $path | fromYaml).metadata.name }}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name }}
{{- $notes := .metadata.annotations | default dict }}
{{- $release := get $notes "meta.helm.sh/release-name" }}
{{- $namespace := get $notes "meta.helm.sh/release-namespace" }}
{{- $managed := get (.metadata.labels | default dict) "app.kubernetes.io/managed-by" }}
{{- if and $release (ne (printf "%s/%s" $namespace $release) (printf "%s/%s" $.Release.Namespace $.Release.Name)) }}
{{- $owner = printf "the release %s in the namespace %s" $release $namespace }}
{{- $others = append $others $name }}
{{- end }}
{{- if not (and $release (eq $managed "Helm")) }}
{{- $nobodys = append $nobodys $name }}
{{- end }}
{{- end }}
{{- end }}
{{- with $others }}
{{- $names := join " " . }}
{{- fail (printf "crds.enabled: these CRDs belong to %s: %s\nIf that release is still installed, set crds.enabled=false here. If it is gone, hand them to this release, then run the same command again. This changes no record:\n  kubectl annotate crd --overwrite %s meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s\n" $owner (join ", " .) $names $.Release.Name $.Release.Namespace) }}
{{- end }}
{{- with $nobodys }}
{{- $names := join " " . }}
{{- fail (printf "crds.enabled: these CRDs exist already and belong to no release; an earlier chart or kubectl installed them: %s\nHand them to this release, then run the same command again. This changes no record:\n  kubectl label crd --overwrite %s app.kubernetes.io/managed-by=Helm\n  kubectl annotate crd --overwrite %s meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s\nOr set crds.enabled=false, and before each upgrade of this release apply the CRDs yourself: kubectl apply -k deploy/crds\n" (join ", " .) $names $names $.Release.Name $.Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Another installation in this cluster. Two sidecar releases in one namespace share their Leases, which is allowed. */}}
{{- define "node-recovery.checkOthers" -}}
{{- $fleet := eq (include "node-recovery.mode" .) "fleet" }}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "").items }}
{{- if and (eq (get (.metadata.labels | default dict) "app.kubernetes.io/name") "node-recovery") (not (hasKey (.metadata.annotations | default dict) "helm.sh/hook")) }}
{{- $notes := .metadata.annotations | default dict }}
{{- $release := get $notes "meta.helm.sh/release-name" }}
{{- $namespace := get $notes "meta.helm.sh/release-namespace" }}
{{- $beside := and (eq $namespace $.Release.Namespace) (ne $release $.Release.Name) (not $fleet) (not (hasSuffix "-fleet" .metadata.name)) }}
{{- if not (or $beside (and (eq $namespace $.Release.Namespace) (eq $release $.Release.Name))) }}
{{- $who := $release | empty | not | ternary (printf "the release %s in the namespace %s" $release $namespace) (printf "what kubectl applied (ClusterRoleBinding %s)" .metadata.name) }}
{{- fail (printf "node-recovery is already installed in this cluster: %s. Two installations would treat one node twice. Upgrade that one, or uninstall it first (deploy/README.md, Uninstall). If it no longer runs and only its objects are left, delete them, or set lookups=false" $who) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A namespace in which Pod Security refuses every pod of a privileged detector: the DaemonSet would stay empty without a word. */}}
{{- define "node-recovery.checkPodSecurity" -}}
{{- if and .Values.npd.create (not .Values.npd.onNode) }}
{{- $labels := ((lookup "v1" "Namespace" "" .Release.Namespace).metadata | default dict).labels | default dict }}
{{- $level := get $labels "pod-security.kubernetes.io/enforce" }}
{{- if has $level (list "baseline" "restricted") }}
{{- fail (printf "npd.create: the namespace %s enforces Pod Security %s, but node-problem-detector must be privileged to open the kernel log. Allow that with kubectl label --overwrite namespace %s pod-security.kubernetes.io/enforce=privileged, or install into another namespace" .Release.Namespace $level .Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What this release made, its pods need, and it is not to make any more: Helm deletes it. */}}
{{- define "node-recovery.checkLeft" -}}
{{- $fleet := eq (include "node-recovery.mode" .) "fleet" }}
{{- $name := $fleet | ternary "fleet" "concluder" }}
{{- $part := get .Values $name }}
{{- if and (not $part.createNamespace) (or $fleet $part.create) }}
{{- $what := printf "the namespace %s, so Helm would delete it with the %s and every Secret in it" $part.namespace ($fleet | ternary "controller" "concluder") }}
{{- include "node-recovery.checkKept" (list . (lookup "v1" "Namespace" "" $part.namespace) (print $name ".createNamespace") $what (print "namespace " $part.namespace)) }}
{{- end }}
{{- if not (or $fleet .Values.serviceAccount.create) }}
{{- $account := .Values.serviceAccount.name }}
{{- $what := printf "the ServiceAccount %s, so Helm would delete it, and no agent could talk to the API server" $account }}
{{- include "node-recovery.checkKept" (list . (lookup "v1" "ServiceAccount" .Release.Namespace $account) "serviceAccount.create" $what (printf "serviceaccount %s -n %s" $account .Release.Namespace)) }}
{{- end }}
{{- end }}

{{- define "node-recovery.checkKept" -}}
{{- $release := (index . 0).Release }}
{{- $notes := ((index . 1).metadata | default dict).annotations | default dict }}
{{- $ours := and (eq (get $notes "meta.helm.sh/release-name") $release.Name) (eq (get $notes "meta.helm.sh/release-namespace") $release.Namespace) }}
{{- if and $ours (ne (get $notes "helm.sh/resource-policy") "keep") }}
{{- fail (printf "%s: false, but this release has made %s. To keep it, run this, then the same command again:\n  kubectl annotate %s helm.sh/resource-policy=keep\n" (index . 2) (index . 3) (index . 4)) }}
{{- end }}
{{- end }}

{{/* Which Nodes this release looks after, for the notes: how many, their names, and loudly that there are none. Nothing where that cannot be seen. */}}
{{- define "node-recovery.nodesThatMatch" -}}
{{- $fleet := eq (include "node-recovery.mode" .) "fleet" }}
{{- $selector := get .Values.settings "FLEET_SELECTOR" | default "" | toString | nospace }}
{{- $known := $fleet | ternary (not (regexMatch "[()]" $selector)) (and .Values.npd.create (not .Values.npd.affinity)) }}
{{- $found := .Values.lookups | default false | ternary (lookup "v1" "Node" "" "") dict }}
{{- if and $known (hasKey $found "items") }}
{{- $names := list }}
{{- range $found.items }}
{{- $labels := .metadata.labels | default dict }}
{{- $wanted := true }}
{{- if $fleet }}
{{- range splitList "," $selector | compact }}
{{- $key := regexFind "[^!=]+" . }}
{{- $value := regexReplaceAll "^[^=]*=+" . "" }}
{{- $has := and (hasKey $labels $key) (or (not (contains "=" .)) (eq (get $labels $key) $value)) }}
{{- if eq $has (contains "!" .) }}{{ $wanted = false }}{{ end }}
{{- end }}
{{- else }}
{{- if ne (get $labels "kubernetes.io/os") "linux" }}{{ $wanted = false }}{{ end }}
{{- if and $.Values.npd.instanceTypes (not (has (get $labels "node.kubernetes.io/instance-type") $.Values.npd.instanceTypes)) }}{{ $wanted = false }}{{ end }}
{{- range $key, $value := $.Values.npd.nodeSelector }}
{{- if ne (get $labels $key) $value }}{{ $wanted = false }}{{ end }}
{{- end }}
{{- end }}
{{- if $wanted }}{{ $names = append $names .metadata.name }}{{ end }}
{{- end }}
{{- $by := $fleet | ternary (printf "settings.FLEET_SELECTOR (%s)" ($selector | default "empty: all Nodes")) "npd.instanceTypes and npd.nodeSelector" }}
{{- if $names }}
It looks after {{ len $names }} of {{ len $found.items }} Nodes: {{ $names | sortAlpha | join ", " | trunc 240 | trimSuffix "," }}{{ if gt (join ", " $names | len) 240 }} ...{{ end }}
{{- else }}
!!! NO NODE MATCHES: THIS RELEASE LOOKS AFTER NONE OF {{ len $found.items }} NODES. !!!
Nodes are selected by {{ $by }}. To see the labels of your Nodes:
  kubectl get nodes --show-labels
{{- end }}
{{- end }}
{{- end }}

{{/* A DaemonSet that the sidecar is to be patched into, and that is not there. */}}
{{- define "node-recovery.noDaemonSet" -}}
{{- if and .Values.lookups (not .Values.npd.create) (hasKey (lookup "v1" "Node" "" "") "items") (not (lookup "apps/v1" "DaemonSet" .Release.Namespace .Values.npd.name)) -}}
!!! THERE IS NO DAEMONSET {{ .Values.npd.name }} IN THE NAMESPACE {{ .Release.Namespace }}. !!! Set npd.name to the name of your DaemonSet, and install into its namespace.
{{- end }}
{{- end }}
