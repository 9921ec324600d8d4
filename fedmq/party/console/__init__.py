"""What does the owner see in a browser? Pages of one party's own daemon, below ``/console``.

The console does what the owner's commands do, through the same functions: what it can do, the
command line can. Needs the extra ``fedmq[console]``.

===================  ====================================================================
``console``          how the parts of the console are put together
``pages``            what each page shows, and what can be done there: one file a page
``sign_in``          who is at the browser, and what may this person do?
``company_sign_in``  how somebody signs in with an account of the company
``request_guard``    where a request comes from, and whether a change was meant
``page_request``     a signed-in person's request for a page: routes, commands, templates
``live``             parts of a page that follow what happens
``drawings``         curves and trees as the browser draws them
===================  ====================================================================
"""
