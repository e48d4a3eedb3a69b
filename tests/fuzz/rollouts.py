def check(request): raise NotImplementedError
