// Search works in a page that was opened as a file, too: a browser starts no worker from a file, so that of the search
// runs in a hidden frame instead. Material's plugin "offline" would load such a script from the network.
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      this.ready = new Promise((resolve) => {
        inner.importScripts = (...urls) => Promise.all(urls.map((one) => this.load(one)));
        // Of the frame, this is what its script calls to answer.
        inner.postMessage = (data) => {
          const message = new MessageEvent("message", { data });
          this.dispatchEvent(message);
          if (this.onmessage) this.onmessage(message);
        };
        this.load(new URL(url, location.href)).then(resolve);
      });
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        this.frame.contentDocument.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
