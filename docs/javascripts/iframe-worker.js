// Browsers refuse worker threads to pages that are opened from the disk. Search runs in a hidden frame then.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.appendChild(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const script = inner.document.createElement("script");
      this.loaded = new Promise((resolve) => (script.onload = resolve));
      script.src = url;
      inner.document.body.appendChild(script);
      this.frame = frame;
    }

    postMessage(data) {
      this.loaded.then(() => {
        const inner = this.frame.contentWindow;
        inner.dispatchEvent(new inner.MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
