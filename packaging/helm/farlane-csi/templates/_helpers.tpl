{{- define "farlane-csi.name" -}}
{{- printf "%s-farlane-csi" .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- end -}}

{{- define "farlane-csi.labels" -}}
app.kubernetes.io/name: farlane-csi
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "farlane-csi.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "farlane-csi.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
