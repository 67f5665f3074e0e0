// Which packet filters can masquerade, and which of them does a configuration mean?

/** Their names, the usual one first. */
const MASQ_BACKENDS = ['nftables', 'iptables'] as const;

/** One of {@link MASQ_BACKENDS}. */
export type MasqBackend = (typeof MASQ_BACKENDS)[number];

/** The packet filter of that name; the usual one without a name, or for a name that {@link findBackendProblem} refuses. */
export function backendOf({ ipMasqBackend }: { readonly ipMasqBackend?: string | undefined }): MasqBackend {
  return MASQ_BACKENDS.find(name => name === ipMasqBackend) ?? MASQ_BACKENDS[0];
}

/** What is wrong with the option's value, if anything. */
export function findBackendProblem(ipMasqBackend: string | undefined): string | undefined {
  if (ipMasqBackend === undefined || MASQ_BACKENDS.some(name => name === ipMasqBackend)) return undefined;
  return `"ipMasqBackend" is "${ipMasqBackend}", expected "${MASQ_BACKENDS.join('" or "')}"`;
}
