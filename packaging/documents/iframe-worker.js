// The search of pages that were opened as files: there browsers start no worker. Its script runs in a frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = (this.inner = frame.contentWindow);
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = (from) => new Promise((resolve, reject) => {
        const element = inner.document.createElement("script");
        Object.assign(element, { src: from, onload: resolve, onerror: reject });
        inner.document.body.append(element);
      });
      inner.importScripts = (...urls) => Promise.all(urls.map(script));
      this.loaded = script(new URL(url, location));
    }
    async postMessage(data) {
      await this.loaded;
      this.inner.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {}
  };
}
